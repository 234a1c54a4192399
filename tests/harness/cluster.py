"""A world whose `node-a` runs the agent on a directory of manifests: what most tests with packets begin with."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeagent.lab.net.namespace_process import PATIENCE
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.topology import first_of
from nodeagent.model.addresses import Family
from nodeagent.model.objects import Service, ServicePort, ServiceSpec
from tests.harness.dns.leftover import kill_dns_processes
from tests.harness.objects import ManifestDirectory, make_node, make_service, make_slices, service_port
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.topology import POD_CIDRS
from tests.harness.worlds.world import World

NODE = "node-a"
TARGET_PORT = 8080
WITH_POD_CIDRS = ("--cluster-cidr", ",".join(POD_CIDRS))
HTTP = (service_port(80, name="http"),)

OF_THE_MACHINE = ("--conntrack-max-per-core=0",)
"""The limit of the connection table is one of the machine, which no network namespace can set: a problem on a small one."""
UNTHROTTLED = {
    "net/ipv4/icmp_ratelimit": "0",
    "net/ipv4/icmp_msgs_per_sec": "100000",
    "net/ipv4/icmp_msgs_burst": "100000",
    "net/ipv6/icmp/ratelimit": "0",
}
"""Sysctls for tests that see many refusals: a kernel sends a host only about one ICMP error a second."""


def cluster_ips(number: int) -> tuple[str, str]:
    """The IPv4 and the IPv6 ClusterIP of this number (1 to 9999), in the service CIDRs of the standard topology."""
    return f"10.96.{number >> 8}.{number & 255}", f"fd00:10:96::{number:x}"


def of_family(family: Family, addresses: Sequence[str]) -> str:
    """The first address of a family. Raises LabError without one."""
    found = first_of(family, tuple(addresses))
    if found is None:
        raise LabError(f"no {family.value} address among {addresses}")
    return found


class Cluster:
    """Puts objects on disk and runs the agent, which reads them. Raises LabError when the agent does not play along."""

    def __init__(self, world: World, manifests: Path) -> None:
        self.world = world
        self.manifests = ManifestDirectory(manifests)
        self.manifests.put(make_node(NODE, world[NODE].addresses))
        self._agents: list[AgentProcess] = []
        self._homes = {pod.name: node.name for node in world.topology.nodes for pod in node.pods}

    def expose(
        self,
        name: str,
        *addresses: str,
        pods: Iterable[str] = (),
        ports: Sequence[ServicePort] = HTTP,
        target_port: int = TARGET_PORT,
        spec: ServiceSpec | None = None,
    ) -> Service:
        """Write a Service with these ClusterIPs, and its slices with these pods, in place of what it was before.

        A service without pods has empty slices.
        """
        service = make_service(name, *addresses, ports=ports, spec=spec)
        places = [(self.world[pod].addresses, self._homes[pod]) for pod in pods]
        self.manifests.put(*make_slices(service, places, target_port=target_port), service)
        return service

    def withdraw(self, service: Service) -> None:
        """Delete a Service and its slices from disk."""
        self.manifests.remove(service, *make_slices(service, []))

    def start_agent(self, *flags: str, seconds: float = PATIENCE, line: str = " ready: ") -> AgentProcess:
        """The agent on `node-a`, ready within so many seconds, or as far as another line of its log."""
        agent = self.world.start(NODE, [*AGENT, "run", *self.sources(), *OF_THE_MACHINE, *flags])
        self._agents.append(agent)
        agent.wait_for_line(line, seconds=seconds)
        return agent

    @contextmanager
    def a_plain_table(self, agent: AgentProcess, *flags: str) -> Iterator[AgentProcess]:
        """Another agent in the place of this one, with a table of its own making; this one again in the end. A plain table
        cannot become an owned one: it is rebuilt."""
        agent.stop()
        successor = self.start_agent(*flags, "--table-ownership", "plain")
        try:
            assert "IPv4:new" in successor.wait_for_line("sync done")
            yield successor
        finally:
            successor.stop()
            printed = len(agent.lines)
            agent.restart()
            agent.wait_for_line(" ready: ", after=printed)

    def kill_agents(self) -> None:
        """Those that a failed test left, and the process that answers names."""
        for agent in self._agents:
            if agent.running:
                agent.kill()
        self._agents.clear()
        kill_dns_processes(self.world.namespace(NODE))

    def program_once(self, *flags: str) -> None:
        """Run the agent with ``--once`` to its end."""
        self.world.run(NODE, [*AGENT, "run", "--once", "--allow-problems", *self.sources(), *flags])

    def call(self, *arguments: str) -> str:
        """What another command of the agent prints on `node-a`."""
        return self.world.run(NODE, [*AGENT, *arguments]).stdout

    def sources(self) -> list[str]:
        """Flags that name what the agent reads, and the node."""
        return ["--manifests", str(self.manifests.path), "--node-name", NODE]


def elements_written(agent: AgentProcess, *, after: int = 0) -> int:
    """The elements touched in the kernel, as the first summary from line `after` on says."""
    line = agent.wait_for_line(r"sync done .* elements=\d+", after=after)
    found = re.search(r"elements=(\d+)", line)
    if found is None:
        raise LabError(f"no element count in {line!r}")
    return int(found[1])
