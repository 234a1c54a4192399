"""A node that serves: its agent runs, and what a test writes down is in force when the call returns."""

import itertools
from collections.abc import Sequence

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Protocol
from nodeagent.model.objects import ApiObject, EndpointSlice, Service
from tests.harness.cluster import TARGET_PORT, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.world import World

BEACON = "beacon"
FIRST_BEACON_NUMBER = 9000


class ServingNode:
    """`node-a` of a cluster and its agent. Raises LabError when the agent does not do its work in ten seconds."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world: World = cluster.world
        self._homes = {pod.name: node.name for node in self.world.topology.nodes for pod in node.pods}
        self._beacons = itertools.count(FIRST_BEACON_NUMBER)
        self._flags: Sequence[str] | None = None
        self._agent: AgentProcess | None = None

    @property
    def agent(self) -> AgentProcess:
        """The one that was started last. Raises RuntimeError before there is one."""
        if self._agent is None:
            raise RuntimeError("no agent was started")
        return self._agent

    def run_agent(self, *flags: str) -> AgentProcess:
        """The agent with these flags, ready; one that runs with others is stopped first, the right one is kept."""
        if self._agent is None or not self._agent.running or flags != self._flags:
            if self._agent is not None:
                self._agent.stop()
            self._agent = self.cluster.start_agent(*flags)
            self._flags = flags
        return self._agent

    def serve(self, *pods: str, port: int = TARGET_PORT) -> None:
        """Let pods answer on TCP and UDP."""
        for pod in pods:
            for protocol in (Protocol.TCP, Protocol.UDP):
                self.world[pod].serve(port, protocol)

    def slices(self, service: Service, *pods: str) -> list[EndpointSlice]:
        """The service's slices with these pods, ready."""
        places = [(self.world[pod].addresses, self._homes[pod]) for pod in pods]
        return make_slices(service, places, target_port=TARGET_PORT)

    def expose(self, service: Service, *pods: str) -> None:
        """Apply a service with these pods as its endpoints."""
        self.apply(*self.slices(service, *pods), service)

    def apply(self, *objects: ApiObject) -> None:
        """Write or replace objects."""
        self.cluster.manifests.put(*objects)
        self.settle()

    def remove(self, *objects: ApiObject) -> None:
        """Delete objects."""
        self.cluster.manifests.remove(*objects)
        self.settle()

    def settle(self) -> None:
        """Return when everything written before is programmed in both families.

        A service without endpoints, written last and at addresses that nobody had before, refuses.
        """
        addresses = cluster_ips(next(self._beacons))
        self.cluster.manifests.put(make_service(BEACON, *addresses))
        caller = self.world["caller"]

        def refused() -> bool:
            return all(caller.ask(a, 80, timeout=0.05).only.failure is Failure.REFUSED for a in addresses)

        self.agent.wait_until(refused, "the last object in force")
