"""What a supervisor holds: the world, the API server, an agent on each node, and pods that are also API objects.

Only one thread may use it. All methods block: for milliseconds, except for building and taking down.
"""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol as Interface

import yaml

from nodeagent.lab import lab_objects, lab_plan
from nodeagent.lab.api import Access, Api, Document, anonymous
from nodeagent.lab.control_plane import API_ANSWER, CERTIFIED_NAME, ControlPlane, answers
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.member import Serving
from nodeagent.lab.net.namespace_process import AgentProcess, Launcher
from nodeagent.lab.net.network_namespaces import LabError, has_br_netfilter, inside
from nodeagent.lab.net.strays import end_processes_in
from nodeagent.lab.net.topology import NO_BRIDGE, POD_BRIDGE, UNDERLAY, Pod
from nodeagent.lab.net.warm_launcher import NODEAGENT, WarmLauncher
from nodeagent.lab.net.world import World
from nodeagent.lab.patience import SECONDS, Patience, TooLate
from nodeagent.lab.programming import expected_endpoints, programmed
from nodeagent.lab.registration import Registration
from nodeagent.lab.resolver import Resolver
from nodeagent.lab.supervisor_messages import LoadSample
from nodeagent.model.addresses import Protocol
from nodeagent.proxy.source.client.api_client import READY_PATH

OUTER_PATIENCE = 8.0
CONNECT_SECONDS = 5.0
DNS_PROCESS = re.compile(r"(?:started a|adopted the) DNS process pid=(\d+)")
READY = " ready: "
"""In the line that an agent prints when it is ready."""
SPREAD_BY_FLOW = {"net/ipv4/fib_multipath_hash_policy": "1", "net/ipv6/fib_multipath_hash_policy": "1"}


class RunningLoad(Interface):
    """A running load."""

    def sample(self) -> LoadSample: ...


class LiveCluster:
    """A cluster on this machine: `build_world` first, `close` last. Methods raise LabError if a step fails.
    fork_server: the first start of each program is a fork of it, if there is one; later starts are as on a real
    machine. faults: descriptions of what is broken on purpose now. loads: the running loads."""

    def __init__(
        self,
        settings: lab_plan.Settings,
        directory: LabDirectory,
        say: Callable[[str], None],
        fork_server: ForkServer | None = None,
    ) -> None:
        self.settings = settings
        launcher = None if fork_server is None else WarmLauncher(fork_server)
        self._pod_bridge = POD_BRIDGE if has_br_netfilter() else NO_BRIDGE
        topology = lab_plan.plan(settings, self._pod_bridge)
        self.world = World(topology, fork_server=fork_server, launcher=launcher)
        self.nodes = {node.name: (number, node) for number, node in enumerate(self.world.topology.nodes, 1)}
        self.pods: dict[str, tuple[Pod, str]] = {}
        self.agents: dict[str, AgentProcess] = {}
        self.restarts: dict[str, int] = dict.fromkeys(self.nodes, 0)
        self.frozen: set[str] = set()
        self.faults: list[str] = []
        self.loads: list[RunningLoad] = []
        self.patience = Patience()
        self.control = ControlPlane(settings, directory, self.world, self.patience) if settings.embedded else None
        self._directory = directory
        self._say = say
        self._servers: dict[str, list[Serving]] = {}
        self._last_number = dict.fromkeys(self.nodes, settings.pods)
        self._api: Api | None = None
        self._registration: Registration | None = None

    @property
    def callers(self) -> list[str]:
        """The pods that only send requests, one on each node."""
        return [lab_plan.caller_name(number) for number, _ in self.nodes.values()]

    @property
    def api(self) -> Api:
        """The API client. Raises LabError before `open_api`."""
        if self._api is None:
            raise LabError("the API server does not run yet")
        return self._api

    @property
    def registration(self) -> Registration:
        """The lab's API objects. Raises LabError before `open_api`."""
        if self._registration is None:
            raise LabError("the API server does not run yet")
        return self._registration

    # -- building -----------------------------------------------------------------------------------------------

    def build_world(self) -> None:
        """Creates namespaces, links, and pods that answer."""
        began = time.monotonic()
        self.world.__enter__()
        members = [UNDERLAY, *(member.name for member in self.world.topology.members)]
        self._directory.namespaces.write_text("\n".join(map(self.world.namespace, members)))
        self.world.write_sysctls(UNDERLAY, SPREAD_BY_FLOW)
        if self.settings.dns:
            self._directory.resolv_conf.write_text(
                lab_plan.resolv_conf(self.settings.dns_addresses[0], lab_objects.NAMESPACE)
            )
        callers = set(self.callers)
        for _, node in self.nodes.values():
            for pod in node.pods:
                if pod.name not in callers:
                    self.pods[pod.name] = (pod, node.name)
                    self._serve(pod)
        self._say(f"{len(members)} network namespaces, joined by a bridge, in {time.monotonic() - began:.1f} s")
        if not self._pod_bridge:
            self._say(
                "each pod has its own link, without a bridge: this kernel has no br_netfilter in network namespaces"
            )

    def _serve(self, pod: Pod) -> None:
        member = self.world[pod.name]
        self._servers[pod.name] = [
            member.serve(lab_plan.TARGET_PORT, protocol) for protocol in (Protocol.TCP, Protocol.UDP)
        ]

    def start_control_plane(self) -> None:
        """Starts the lab's own API servers, and etcd if there are several."""
        control = self.control
        assert control is not None, "the API server is of the lab"
        took = control.start_etcd()
        if control.etcd is not None:
            self._say(f"{len(control.hosts)} members of etcd answer, after {took:.1f} s")
        control.start_servers()

    def outer_access(self) -> Access:
        """Returns access to an API server outside the lab, from this machine."""
        if not self.settings.credentials:
            return anonymous(self.settings.api)
        return Access.read(self._directory.base / self.settings.credentials).at(self.settings.api)

    def await_outer(self, access: Access) -> None:
        """Waits until the server outside accepts connections. Raises a clear LabError if it does not."""
        refusals: list[str] = []

        def listens() -> bool:
            try:
                socket.create_connection(access.place, timeout=5.0).close()
            except OSError as error:
                refusals.append(str(error.strerror or error))
                return False
            return True

        try:
            self.patience.until(listens, "a connection", seconds=OUTER_PATIENCE)  # it may just be starting
        except TooLate:
            raise LabError(f"--api {self.settings.api}: {refusals[-1]}") from None

    def write_inner_kubeconfig(self, access: Access) -> None:
        """Writes the kubeconfig for the inside: it reaches the outside API server through the control host."""
        self.write_private(self._directory.inner_kubeconfig, access.moved_to(lab_plan.api_address(), lab_plan.API_PORT))

    def write_outer_kubeconfig(self, port: int) -> None:
        """Writes the kubeconfig for programs on this machine: the API server is at a port of loopback."""
        inner = Access.read(self._directory.inner_kubeconfig)
        name = CERTIFIED_NAME if self.settings.several else ""
        self.write_private(self._directory.kubeconfig, inner.moved_to("127.0.0.1", port, name))

    @staticmethod
    def write_private(path: os.PathLike[str], document: Document) -> None:
        """Writes a file that only its owner can read."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(document, file, sort_keys=False)

    def open_api(self) -> None:
        """Connects to the API server; from then on `api` works."""
        self._api = self.new_api()
        self._registration = Registration(self._api, self.settings)
        if self.control is not None:
            for host in self.control.hosts:
                self.control.await_ready(host)
            return
        try:
            self.patience.until(lambda: answers(self.api), API_ANSWER, seconds=OUTER_PATIENCE)
        except TooLate:
            self.api.call("GET", READY_PATH)  # raises the reason
            raise

    def new_api(self) -> Api:
        """Returns a client for another thread; of several API servers it uses one that answers."""
        if self.control is not None:
            return self.control.new_api()
        return Api(Access.read(self._directory.inner_kubeconfig), self.world.namespace(UNDERLAY))

    def connect_to_api(self) -> socket.socket:
        """Returns a TCP connection from the lab's router to an API server, of several to a running one. Raises OSError."""
        addresses = [lab_plan.api_address()]
        if self.control is not None:
            addresses = [self.control.addresses(host)[0] for host in self.control.active_first()]
        return inside(self.world.namespace(UNDERLAY), lambda: connected(addresses))

    def start_agents(self) -> None:
        """Starts an agent on each node, without waiting until they are ready."""
        for name in self.nodes:
            self.agents[name] = self.world.start(name, self.agent_command(name))

    def agent_command(self, node: str) -> list[str]:
        """Returns the command line of a node's agent."""
        cluster = ",".join(self.settings.of_families(lab_plan.CLUSTER_CIDRS))
        options = ["--kubeconfig", str(self._directory.inner_kubeconfig), "--node-name", node]
        if self.settings.several:
            options += ["--master", ",".join(lab_plan.api_urls(self.settings))]
        options += ["--cluster-cidr", cluster, "--families", ",".join(lab_plan.families_of(self.settings))]
        options += ["--conntrack-max-per-core", "0"]
        if self.settings.dns:
            options += ["--dns", "--dns-listen", ",".join(self.settings.dns_addresses)]
        return [*NODEAGENT, "run", *options, *self.settings.agent_options]

    def register(self) -> None:
        """Creates nodes, pods and the service as API objects."""
        for number, node in self.nodes.values():
            self.registration.add_node(node, number)
        for pod, node_name in self.pods.values():
            self.registration.add_pod(pod, self.nodes[node_name][1])
        self.registration.add_service()

    def wait_until_programmed(self) -> None:
        """Waits until every endpoint of the lab's service is programmed on every node."""
        wanted = len(self.pods) * len(lab_plan.families_of(self.settings))
        service = f"{lab_objects.NAMESPACE}/{lab_plan.SERVICE}"

        def complete() -> bool:
            expected = expected_endpoints(self.api)
            if len([one for one in expected if one[0] == f"{service}:tcp"]) < wanted:
                return False
            return all(have == want for have, want in programmed(self.world, self.nodes, expected).values())

        for name, agent in self.agents.items():
            self.patience.until_line(agent, READY, f"the agent of {name}")
        self.patience.until(complete, "every endpoint on every node")

    def wait_until_names_are_answered(self) -> None:
        """Waits until every node answers the name of the lab's service."""
        name = f"{lab_plan.SERVICE}.{lab_objects.NAMESPACE}.svc.{lab_plan.ZONE}"
        for number, _ in self.nodes.values():
            for server in self.settings.dns_addresses:
                resolver = Resolver(self.world.namespace(lab_plan.caller_name(number)), server)
                self.patience.until(lambda resolver=resolver: resolver.knows(name), f"{name} at {server}")  # type: ignore[misc]

    def dns_process(self, node: str) -> int:
        """Returns the pid of the DNS process, from the agent's latest line about it. Raises LabError without one."""
        for line in reversed(self.agents[node].lines):
            if found := DNS_PROCESS.search(line):
                return int(found[1])
        raise LabError(f"the agent of {node} reported no DNS process")

    def start_until(self, member: str, argv: Sequence[str], words: str, seconds: float = SECONDS) -> AgentProcess:
        """Starts a program in a member's namespace and waits until it prints a line with these words; otherwise kills
        it and raises LabError."""
        process = self.world.start(member, argv)
        try:
            self.patience.until_line(process, words, f"{words!r}", seconds=seconds)
        except LabError:
            process.kill()
            raise
        return process

    # -- pods ---------------------------------------------------------------------------------------------------

    def add_pod(self, node: str) -> str:
        """Adds a pod to a node, ready and registered. Returns its name."""
        number, home = self.nodes[node]
        self._last_number[node] += 1
        taken = frozenset(address for pod, _ in self.pods.values() for address in pod.addresses)
        pod = lab_plan.pod_at(self.settings, number, self._last_number[node], taken)
        self.world.add_pod(home.name, pod)
        self.pods[pod.name] = (pod, node)
        with self._directory.namespaces.open("a") as file:
            file.write(f"\n{self.world.namespace(pod.name)}")
        self._serve(pod)
        self.registration.add_pod(pod, home)
        return pod.name

    def begin_deletion(self, name: str, grace: int) -> None:
        """Starts the deletion of a pod: it is terminating, and still answers."""
        self.api.delete(f"{lab_objects.PODS}/{name}", {"gracePeriodSeconds": grace})

    def remove_pod(self, name: str) -> None:
        """Removes a pod completely."""
        self.api.delete(f"{lab_objects.PODS}/{name}", {"gracePeriodSeconds": 0})
        for server in self._servers.pop(name):
            server.stop()  # closes its connections, as the end of a program would
        self.world.remove_pod(name)
        del self.pods[name]

    def renew_leases(self) -> None:
        """Renews the Lease of every node. Raises LabError if the API server cannot be reached."""
        for name in self.nodes:
            self.registration.renew_lease(name)

    # -- breaking -----------------------------------------------------------------------------------------------

    def restart_agent(self, node: str) -> float:
        """Starts the agent again; stops it first if it runs. Returns the seconds until it was ready."""
        began = time.monotonic()
        agent = self.agents[node]
        printed = len(agent.lines)
        agent.restart(Launcher())
        self.restarts[node] += 1
        self.patience.until_line(agent, READY, f"the agent of {node}", after=printed)
        return time.monotonic() - began

    def freeze_agent(self, node: str) -> None:
        """Stops the agent's process (SIGSTOP); it keeps its sockets and its tables."""
        self.agents[node].signal(signal.SIGSTOP)
        self.frozen.add(node)

    def thaw_agent(self, node: str) -> None:
        """Lets a frozen agent continue (SIGCONT)."""
        self.agents[node].signal(signal.SIGCONT)
        self.frozen.discard(node)

    # -- lookup -------------------------------------------------------------------------------------------------

    def namespace_of(self, member: str) -> str:
        """Returns the namespace of a node, pod, control-plane host, `client` or `underlay`. Raises LabError for others."""
        try:
            return self.world.namespace(member)
        except KeyError:
            hosts = [host.name for host in self.world.topology.outside]
            known = ", ".join(sorted([*self.nodes, *self.pods, *self.callers, *hosts, UNDERLAY]))
            raise LabError(f"there is no {member!r} in the lab; there are {known}") from None

    def kubeconfig_of(self, member: str) -> str:
        """Returns the path of a kubeconfig that works there: a control-plane host's own server, else a running one."""
        if self.control is None or not self.settings.several:
            return str(self._directory.inner_kubeconfig)
        host = member if member in self.control.hosts else self.control.an_active_host()
        return str(self._directory.control_kubeconfig(host))

    # -- the end ------------------------------------------------------------------------------------------------

    def withdraw(self) -> None:
        """Deletes our objects from an outside API server, if it can be reached."""
        if not self.settings.embedded and self._registration is not None:
            self._registration.withdraw()

    def close(self) -> None:
        """Removes everything, in any state."""
        if self._api is not None:
            self._api.close()
        for process in self.agents.values():
            process.kill()
        if self._directory.namespaces.exists():
            end_processes_in(self._directory.namespaces.read_text().split(), but=self.world.actors)
        self.world.close()


def connected(addresses: Sequence[str]) -> socket.socket:
    """Returns a TCP connection to the first of these API servers that accepts. Raises the OSError of the last one."""
    *several, last = addresses
    for address in several:
        with suppress(OSError):
            return socket.create_connection((address, lab_plan.API_PORT), timeout=CONNECT_SECONDS)
    return socket.create_connection((last, lab_plan.API_PORT), timeout=CONNECT_SECONDS)
