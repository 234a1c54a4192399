"""The world of the tests: the standard one by default, with hosts around a router, SCTP, and power that fails."""

from collections.abc import Mapping, Sequence
from typing import Self

from nodeagent.lab.net import world
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.member import Member
from nodeagent.lab.net.namespace_process import Launcher
from nodeagent.lab.net.network_namespaces import run_ip
from nodeagent.lab.net.topology import UNDERLAY, Pod, Topology
from tests.harness.worlds import power, routed_wiring
from tests.harness.worlds.forks import SeparateForkServer
from tests.harness.worlds.power import Wiring
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.sctp_actor import ACTOR
from tests.harness.worlds.topology import standard_topology


class World(world.World):
    """Without a fork server it starts one of its own."""

    program = ACTOR

    def __init__(
        self,
        topology: Topology | None = None,
        joined_by: Wiring = routed_wiring,
        *,
        fork_server: ForkServer | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        super().__init__(topology or standard_topology(), joined_by.plan, fork_server=fork_server, launcher=launcher)
        self.joined_by = joined_by
        self._own_fork_server: ForkServer | None = None

    def __enter__(self) -> Self:
        if self._fork_server is None:
            self._fork_server = self._own_fork_server = SeparateForkServer(ACTOR)
        return super().__enter__()

    def add_pod(self, node: str, pod: Pod) -> Member:
        member = super().add_pod(node, pod)
        if self.joined_by is routed_wiring:
            run_ip(["-n", self.namespace(UNDERLAY)], tuple(routed_wiring.underlay_route(self._nodes[node], pod)))
        return member

    def remove_pod(self, name: str) -> None:
        removed = Pod(name, self[name].addresses)
        super().remove_pod(name)
        if self.joined_by is routed_wiring:
            run_ip(["-n", self.namespace(UNDERLAY)], tuple(routed_wiring.forget_pod(removed)))

    def start(
        self,
        member: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        launcher: Launcher | None = None,
    ) -> AgentProcess:
        launcher = launcher or self._launcher
        process = AgentProcess(self.namespace(member), argv, environment=environment, launcher=launcher)
        self._processes.append(process)
        return process

    def cut_power(self, name: str) -> None:
        power.cut_power(self, name)

    def give_power(self, name: str) -> Member:
        return power.give_power(self, name, self.joined_by)

    def close(self) -> None:
        super().close()
        if self._own_fork_server is not None:
            self._own_fork_server.close()
            self._fork_server = self._own_fork_server = None
