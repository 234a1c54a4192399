"""A resolver of others that dies while the agent runs: `nodeagent problems` and `nodeagent dns` say so until it answers again."""

import socket
import time
from collections.abc import Iterator

import dns.message
import pytest

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster
from tests.harness.dns import upstream_server
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import wait_for

SERVER = "169.254.20.10"
CLIENT = "caller"
LATEST_SECONDS = 10.0
CONTROL_SECONDS = 6.0


class Named:
    """A node whose agent answers names, and asks one resolver for others."""

    def __init__(self, cluster: Cluster, launcher: WarmLauncher, place: str) -> None:
        self._cluster = cluster
        self._launcher = launcher
        self._place = place
        self._asked = 0
        flags = ("--dns", "--dns-listen", SERVER, "--dns-upstreams", upstream_server.FLAG)
        cluster.start_agent(*WITH_POD_CIDRS, "--table-ownership=plain", f"--socket={place}", *flags)

    @property
    def problems(self) -> str:
        namespace = self._cluster.world.namespace(NODE)
        return self._launcher.command(namespace, ("problems", "--socket", self._place)).stdout

    @property
    def explained(self) -> str:
        """`nodeagent dns` of a name outside the cluster."""
        self._asked += 1
        namespace = self._cluster.world.namespace(NODE)
        return self._launcher.command(
            namespace, ("dns", f"n{self._asked}.example.org", "A", "--socket", self._place)
        ).stdout

    def ask(self) -> None:
        """A pod asks for a name outside the cluster that nobody asked for before; whatever comes back."""
        self._asked += 1
        query = dns.message.make_query(f"n{self._asked}.example.org.", "A").to_wire()

        def send() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.sendto(query, (SERVER, 53))

        inside(self._cluster.world.namespace(CLIENT), send)

    def says(self, text: str) -> bool:
        self.ask()
        return text in self.problems

    def in_time(self, text: str) -> None:
        begun = time.monotonic()
        wait_for(lambda: self.says(text), lambda: self.problems)
        assert time.monotonic() - begun < LATEST_SECONDS


@pytest.fixture
def named(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Named]:
    yield Named(cluster, warm_launcher, str(tmp_path_factory.mktemp("socket") / "agent.sock"))
    cluster.kill_agents()
    cluster.call("cleanup")


def test_a_resolver_that_dies_and_comes_back(named: Named, cluster: Cluster) -> None:
    """Control: while it answers, questions make no problem."""
    node = cluster.world.namespace(NODE)
    with upstream_server.scripted_upstream(node):
        wait_for(lambda: named.says("healthy: no problems\n"), lambda: named.problems)
        end = time.monotonic() + CONTROL_SECONDS
        while time.monotonic() < end:
            assert named.says("healthy: no problems\n"), named.problems
        assert f"servers that are asked: {upstream_server.FLAG}\n" in named.explained
        assert "does not answer" not in named.explained
    named.in_time("UpstreamDown")
    assert f"the resolver {upstream_server.FLAG} does not answer" in named.problems
    assert f"the resolver {upstream_server.FLAG} does not answer" in named.explained
    with upstream_server.scripted_upstream(node):
        named.in_time("healthy: no problems\n")
