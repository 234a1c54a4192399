"""A world with an API server on a host of its own, and an agent on `node-a` that follows it."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nodeagent.lab.api import Document
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.topology import OutsideHost, Pod, Topology
from nodeagent.model.addresses import Protocol
from tests.harness.api_client import ApiClient
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS
from tests.harness.lost_packets import PATIENT
from tests.harness.stopwatch import Change
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.topology import SERVICE_CIDRS, standard_topology
from tests.harness.worlds.world import World

CONTROL = "control"
CONTROL_ADDRESSES = ("192.0.2.10", "2001:db8:c::10")
PORT = 6443
SOON = 1.0
"""Seconds from a change that the API server has accepted to the packets that follow it, as promised; a tenth is usual."""
PODS = ("web-0", "web-1", "web-2", "far-0")


def controlled_topology() -> Topology:
    """The standard world with a host for the API server."""
    topology = standard_topology()
    return Topology(topology.nodes, (*topology.outside, OutsideHost(CONTROL, CONTROL_ADDRESSES)))


class ApiCluster:
    """Starts, kills and restarts the two processes, and speaks to the server. Raises LabError where they do not play
    along.

    directory: where the server keeps its data and writes its kubeconfig; absolute.
    """

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.directory = directory
        self.data = directory / "data"
        self.kubeconfig = directory / "kubeconfig"
        self._homes = {pod.name: node.name for node in world.topology.nodes for pod in node.pods}
        self._kept_in: tuple[str, ...] = ()
        self._server: AgentProcess | None = None
        self._agent: AgentProcess | None = None
        self._api: ApiClient | None = None

    @property
    def server(self) -> AgentProcess:
        """The API server that was started last."""
        assert self._server is not None, "no API server was started"
        return self._server

    @property
    def agent(self) -> AgentProcess:
        """The agent that was started last."""
        assert self._agent is not None, "no agent was started"
        return self._agent

    @property
    def api(self) -> ApiClient:
        """A client of the server that was started last, on its own host."""
        assert self._api is not None, "no API server was started"
        return self._api

    def keep_in(self, *flags: str) -> None:
        """Objects of servers started from now on are kept as these options say, not on disk."""
        self._kept_in = flags

    def start_server(self, *flags: str, listen: str = CONTROL_ADDRESSES[0]) -> None:
        """An API server that serves when this returns. At ``127.0.0.1`` it works out of the agent's sight."""
        arguments = ["--listen", f"{listen}:{PORT}", "--data-dir", str(self.data)]
        arguments += ["--kubeconfig-out", str(self.kubeconfig), "--service-cluster-ip-range", ",".join(SERVICE_CIDRS)]
        self._server = self.world.start(CONTROL, [*AGENT, "apiserver", *arguments, *self._kept_in, *flags])
        self._server.wait_for_line("serving address=")
        self._api = ApiClient(self.world.namespace(CONTROL), self.kubeconfig)

    def restart_server(self) -> None:
        """The same API server once more, serving when this returns."""
        printed = len(self.server.lines)
        self.server.restart()
        self.server.wait_for_line("serving address=", after=printed)

    def declare_nodes(self) -> None:
        """A Node object for each node of the world, ready, with the node's addresses."""
        for node in self.world.topology.nodes:
            created = self.api.create("/api/v1/nodes", {"metadata": {"name": node.name}})
            addresses = [{"type": "InternalIP", "address": address} for address in node.addresses]
            status = {"addresses": addresses, "conditions": [{"type": "Ready", "status": "True"}]}
            self.api.replace(f"/api/v1/nodes/{node.name}/status", {**created, "status": status})

    def serve(self, *pods: str, port: int = TARGET_PORT) -> None:
        """Let pods answer on TCP and UDP."""
        for pod in pods:
            for protocol in (Protocol.TCP, Protocol.UDP):
                self.world[pod].serve(port, protocol)

    def add_pod(self, node: str, pod: Pod) -> None:
        """A new pod of the world behind a node, that answers."""
        self.world.add_pod(node, pod)
        self._homes[pod.name] = node
        self.serve(pod.name)

    def start_agent(self, *flags: str, kubeconfig: bool = True, command: Sequence[str] = AGENT) -> None:
        """An agent on `node-a` that is ready when this returns; one that runs already is stopped.

        Without `kubeconfig` it must find the server by itself, for which `command` may be more than the program.
        """
        self.stop_agent()
        source = ["--kubeconfig", str(self.kubeconfig)] if kubeconfig else []
        argv = [*command, "run", *source, "--node-name", NODE, *WITH_POD_CIDRS, *flags]
        self._agent = self.world.start(NODE, argv)
        self._agent.wait_for_line(" ready: ")

    def stop_agent(self) -> None:
        """End the agent if one runs; its rules stay."""
        if self._agent is not None and self._agent.running:
            self._agent.stop()

    def restart_agent(self) -> None:
        """The same agent once more, ready when this returns."""
        printed = len(self.agent.lines)
        self.agent.restart()
        self.agent.wait_for_line(" ready: ", after=printed)

    def changed(self) -> Change:
        """To be called right after a change."""
        return Change(self.agent, self.processes)

    @property
    def processes(self) -> tuple[int, ...]:
        """The server, the agent, the actors of hosts, and this one."""
        return (self.server.pid, self.agent.pid, *self.world.actors, os.getpid())

    def tenant(self, name: str) -> "Tenant":
        """A new Kubernetes namespace."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        return Tenant(self, name)

    def home_of(self, pod: str) -> str:
        """The node a pod of the world is on."""
        return self._homes[pod]


class Tenant:
    """One Kubernetes namespace, and what a test keeps in it. Its pods stand for pods of the world, which they may share."""

    def __init__(self, cluster: ApiCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._path = f"/api/v1/namespaces/{name}"

    @property
    def _api(self) -> ApiClient:
        return self.cluster.api

    def path(self, plural: str, name: str = "") -> str:
        """Of a core collection in this namespace, or of an object in it."""
        return f"{self._path}/{plural}/{name}".rstrip("/")

    def run_pod(
        self, member: str, *, name: str = "", ready: bool = True, labels: Mapping[str, str] | None = None
    ) -> None:
        """A Pod object for a pod of the world, running there; `labels`: ``app: web`` when not given."""
        name = name or member
        spec = {
            "nodeName": self.cluster.home_of(member),
            "containers": [{"name": "c", "image": "registry.example/app:1"}],
        }
        metadata = {"name": name, "labels": dict(labels or {"app": "web"})}
        created = self._api.create(self.path("pods"), {"metadata": metadata, "spec": spec})
        addresses = [{"ip": address} for address in self.cluster.world[member].addresses]
        status = {
            "phase": "Running",
            "podIP": addresses[0]["ip"],
            "podIPs": addresses,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        self._api.replace(self.path("pods", f"{name}/status"), {**created, "status": status})

    def set_ready(self, pod: str, *, ready: bool) -> None:
        """Let a Pod's Ready condition be so."""
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        self._api.merge(self.path("pods", f"{pod}/status"), {"status": {"conditions": [condition]}})

    def end_pod(self, pod: str, *, grace_seconds: int = 0) -> None:
        """Delete a Pod; it is terminating for `grace_seconds`."""
        self._api.delete(self.path("pods", pod), grace_seconds=grace_seconds)

    def expose(self, name: str, *, metadata: Document | None = None, **spec: Any) -> Document:
        """Create a Service: dual stack, port 80 (TCP) to 8080 of the pods ``app: web``, unless `spec` says otherwise."""
        filled: Document = {
            "selector": {"app": "web"},
            "ipFamilyPolicy": "PreferDualStack",
            "ports": [{"name": "http", "port": 80, "targetPort": TARGET_PORT}],
            **spec,
        }
        body = {"metadata": {"name": name, **(metadata or {})}, "spec": filled}
        return self._api.create(self.path("services"), body)

    def cluster_ips(self, name: str) -> tuple[str, ...]:
        """What the server gave a Service."""
        return tuple(self._api.get(self.path("services", name))["spec"]["clusterIPs"])

    def kubectl(self, program: Path | str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """What kubectl prints, run on the API server's host in this namespace. Raises LabError when it fails, or,
        with `fails`, when it does not."""
        command = ["env", f"HOME={self.cluster.directory}", f"KUBECONFIG={self.cluster.kubeconfig}"]
        command += [str(program), "-n", self.name, *arguments]
        result = self.cluster.world.run(CONTROL, command, stdin=stdin, check=False)
        if (result.returncode != 0) is not fails:
            raise LabError(
                f"kubectl {' '.join(arguments)} ended with {result.returncode}: {result.stderr}{result.stdout}"
            )
        return result.stderr if fails else result.stdout

    def remove(self) -> None:
        """Delete the namespace; what is in it goes with it."""
        self._api.delete(f"/api/v1/namespaces/{self.name}")


def answering(cluster: ApiCluster, addresses: tuple[str, ...], port: int = 80, *, client: str = "caller") -> set[str]:
    """Who answers at these addresses: names of pods, and the kinds of failures. It is for conditions that are looked at
    again: somebody may be late, or not have been picked."""
    return _asked(cluster, addresses, port, client, count=12, timeout=0.15)


def all_answering(
    cluster: ApiCluster, addresses: tuple[str, ...], port: int = 80, *, client: str = "caller"
) -> set[str]:
    """The same for what holds now or not at all: nobody is late, and of four pods one is missed once in 25,000 times."""
    return _asked(cluster, addresses, port, client, count=40, timeout=PATIENT)


def _asked(
    cluster: ApiCluster, addresses: tuple[str, ...], port: int, client: str, *, count: int, timeout: float
) -> set[str]:
    return {
        answer.failure.value if answer.failure else answer.name
        for address in addresses
        for answer in cluster.world[client].ask(address, port, count=count, workers=12, timeout=timeout)
    }


def answered_by(
    cluster: ApiCluster, addresses: tuple[str, ...], *names: str, port: int = 80, client: str = "caller"
) -> Callable[[], bool]:
    """A condition: it is these who answer, all of them and nobody else (see `answering`)."""
    return lambda: answering(cluster, addresses, port, client=client) == set(names)
