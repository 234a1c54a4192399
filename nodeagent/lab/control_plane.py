"""The control plane of a lab: one API server with its own store, or several with etcd members.

Only one thread may use it.
"""

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from ipaddress import IPv4Address
from pathlib import Path

from nodeagent.lab import lab_plan
from nodeagent.lab.api import Access, Api, ApiRefused
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.etcd import EtcdCluster
from nodeagent.lab.net.namespace_process import AgentProcess, Launcher
from nodeagent.lab.net.network_namespaces import LabError, inside
from nodeagent.lab.net.topology import UNDERLAY
from nodeagent.lab.net.warm_launcher import NODEAGENT
from nodeagent.lab.net.world import World
from nodeagent.lab.patience import Patience
from nodeagent.proxy.source.client.api_client import READY_PATH

CONTROLLERS = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/nodeagent-controllers"
CERTIFIED_NAME = "kubernetes"
"""A name in the certificate of every API server."""
TCP_TABLE = Path("/proc/thread-self/net/tcp")
ESTABLISHED = "01"
API_ANSWER = "an answer of the API server"


class ControlPlane:
    """The API servers of a lab, and its etcd.
    servers: API servers by host name. etcd: None if there is one server, which has its own store. Methods raise
    LabError if a program does not do what it should."""

    def __init__(self, settings: lab_plan.Settings, directory: LabDirectory, world: World, patience: Patience) -> None:
        self.servers: dict[str, AgentProcess] = {}
        self._settings = settings
        self._directory = directory
        self._world = world
        self._patience = patience
        self._hosts = lab_plan.control_hosts(settings)
        self.etcd = (
            EtcdCluster(settings.etcd, self._hosts, directory.etcd, world, patience) if settings.several else None
        )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names."""
        return tuple(host.name for host in self._hosts)

    @property
    def processes(self) -> dict[str, AgentProcess]:
        """Every process that writes a log, by its name."""
        found = dict(self.servers)
        if self.etcd is not None:
            found |= {lab_plan.member_name(host): process for host, process in self.etcd.members.items()}
        return found

    def addresses(self, host: str) -> tuple[str, ...]:
        """Returns the addresses of a host."""
        return self._world.topology.addresses[host]

    # -- building -----------------------------------------------------------------------------------------------

    def start_etcd(self) -> float:
        """Starts etcd if the lab has it. Returns the seconds until every member answers."""
        began = time.monotonic()
        if self.etcd is not None:
            self.etcd.start()
        return time.monotonic() - began

    def start_servers(self) -> None:
        """Starts all API servers; waits for their kubeconfigs, which are for the inside."""
        for host in self.hosts:
            self.servers[host] = self._world.start(host, self._command(host))
        for host, server in self.servers.items():
            written = self._directory.control_kubeconfig(host)
            self._patience.until(written.exists, "the API server's kubeconfig", of=server)
        shutil.copyfile(self._directory.control_kubeconfig(self.hosts[0]), self._directory.inner_kubeconfig)
        self._directory.inner_kubeconfig.chmod(0o600)

    def _command(self, host: str) -> list[str]:
        ranges = {
            "--service-cluster-ip-range": lab_plan.SERVICE_CIDRS,
            "--load-balancer-cidr": lab_plan.LOAD_BALANCER_CIDRS,
        }
        options = [f"{option}={','.join(self._settings.of_families(pair))}" for option, pair in ranges.items()]
        options += [f"--pod-cidr={cidr}" for cidr in self._settings.of_families(lab_plan.CLUSTER_CIDRS)]
        options += [f"--listen={self.addresses(host)[0]}:{lab_plan.API_PORT}"]
        options += [f"--kubeconfig-out={self._directory.control_kubeconfig(host)}"]
        if self.etcd is None:
            return [*NODEAGENT, "apiserver", f"--data-dir={self._directory.api_data}", *options]
        data = self._directory.api_data / host
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        return [
            *(*NODEAGENT, "apiserver", "--storage=etcd", f"--data-dir={data}", *options),
            *self.etcd.client_options,
        ]

    # -- queries ------------------------------------------------------------------------------------------------

    def an_active_host(self) -> str:
        """Returns a host whose API server runs, if any does."""
        return self.active_first()[0]

    def active_first(self) -> list[str]:
        """Returns the hosts; those whose API server runs come first."""
        return sorted(self.hosts, key=lambda host: not is_active(self.servers[host]))

    def new_api(self) -> Api:
        """Returns a client for one thread; of several servers it uses one that answers."""
        inner = Access.read(self._directory.inner_kubeconfig)
        return Api(inner.at(*lab_plan.api_urls(self._settings)), self._world.namespace(UNDERLAY))

    def api_of(self, host: str) -> Api:
        """Returns a client of one server."""
        return Api(Access.read(self._directory.control_kubeconfig(host)), self._world.namespace(UNDERLAY))

    def is_ready(self, host: str) -> bool:
        """Returns whether a host's server reports that it is ready."""
        if not is_active(self.servers[host]):
            return False
        with self.api_of(host) as api:
            return answers(api)

    def elected(self, api: Api) -> str:
        """Returns the host whose server runs the controllers. Raises LabError if no server does."""
        lease = api.call("GET", CONTROLLERS)
        holder = lease["spec"].get("holderIdentity") or ""
        for host in self.hosts:
            if f"{self.addresses(host)[0]}:{lab_plan.API_PORT}" in holder:
                return host
        raise LabError(f"no server runs the controllers (holder in the lease: {holder!r})")

    def most_used(self) -> str:
        """Returns the host whose server has connections from the most nodes."""
        nodes = {node.addresses[0] for node in self._world.topology.nodes}
        counts = {
            host: len(
                nodes
                & inside(self._world.namespace(host), lambda: clients_of(lab_plan.API_PORT, TCP_TABLE.read_text()))
            )
            for host in self.hosts
        }
        return max(self.hosts, key=counts.__getitem__)

    # -- breaking -----------------------------------------------------------------------------------------------

    def stop_servers(self) -> None:
        """Ends all API servers (SIGTERM)."""
        for server in self.servers.values():
            server.stop()

    def restart_servers(self) -> None:
        """Starts all API servers again, and waits until each is ready."""
        for server in self.servers.values():
            server.restart(Launcher())
        for host in self.hosts:
            self.await_ready(host)

    def restart_server(self, host: str) -> None:
        """Starts the server of a host again, and waits until it is ready."""
        self.servers[host].restart(Launcher())
        self.await_ready(host)

    def replace_server(self, host: str, environment: Mapping[str, str]) -> Callable[[], None]:
        """Replaces a host's server by one with additional environment variables, and waits until it is ready. Returns a
        function that undoes this."""
        usual = self.servers[host]
        usual.stop()
        command = self._command(host)
        self.servers[host] = self._world.start(host, command, environment=environment, launcher=Launcher())

        def undo() -> None:
            self.servers[host].kill()
            self.servers[host] = usual
            self.restart_server(host)

        try:
            self.await_ready(host)
        except BaseException:
            undo()
            raise
        return undo

    def await_ready(self, host: str) -> None:
        """Waits until the server of a host is ready."""
        self._patience.until(lambda: self.is_ready(host), API_ANSWER, of=self.servers[host])


def answers(api: Api) -> bool:
    """Returns whether the API server is ready. Raises ApiRefused if it rejects our credentials."""
    try:
        api.call("GET", READY_PATH)
    except ApiRefused as refusal:
        if refusal.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise
        return False
    except LabError:
        return False
    return True


def clients_of(port: int, table: str) -> set[str]:
    """Returns the IPv4 addresses with a connection to a local port, from proc_net(5)'s table of TCP sockets. Pure."""
    found = set()
    for row in table.splitlines()[1:]:
        _, local, remote, state, *_ = row.split()
        if state == ESTABLISHED and int(local.rpartition(":")[2], 16) == port:
            found.add(str(IPv4Address(int.from_bytes(bytes.fromhex(remote.partition(":")[0]), sys.byteorder))))
    return found


def is_active(process: AgentProcess) -> bool:
    """Returns whether a process runs and is not frozen."""
    return process_state(process) == "running"


def process_state(process: AgentProcess) -> str:
    """Returns "running", "stopped" or "frozen"."""
    if not process.running:
        return "stopped"
    return "frozen" if process.kernel_state == "T" else "running"
