"""`nodeagent trace --live`: what the kernel says of real packets beside what was predicted."""

import itertools
import json
import re
import signal
import subprocess
import sys
from typing import Any, Self

import pytest

from nodeagent.model.addresses import Family, Protocol, endpoint_text
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.effort import EFFORT
from tests.harness.objects import service_port
from tests.harness.worlds.world import World

pytestmark = pytest.mark.kernel

PORTS = (service_port(80, name="http"), service_port(80, Protocol.UDP, name="dns"))
COMMAND = [sys.executable, "-c", "from nodeagent.cli.main import main; main(prog_name='nodeagent')", "trace"]
DEADLINE_SECONDS = 60
LONG = 10


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Cluster:
    for pod in ("web-0", "web-1", "far-0"):
        for protocol in (Protocol.TCP, Protocol.UDP):
            cluster.world[pod].serve(TARGET_PORT, protocol)
    cluster.expose("web", *cluster_ips(1), pods=("web-0", "web-1", "far-0"), ports=PORTS)
    cluster.expose("empty", *cluster_ips(2), pods=(), ports=PORTS)
    cluster.program_once(*WITH_POD_CIDRS)
    return cluster


class Following:
    """A trace that follows packets already; it is ended with the block."""

    def __init__(self, world: World, client: str, address: str, protocol: Protocol, count: int) -> None:
        place = f"{endpoint_text(address, 80)}/{protocol.name}"
        source = world[client].address(Family.IPV6 if ":" in address else Family.IPV4)
        argv = [*COMMAND, source, place, "--live", str(count), "--wait", "60", "-o", "json"]
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", world.namespace(NODE), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        assert self.process.stderr.readline() == "nodeagent: following packets\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def result(self) -> dict[str, Any]:
        out, _ = self.process.communicate(timeout=DEADLINE_SECONDS)
        found: dict[str, Any] = json.loads(out)
        return found


def tables(world: World) -> str:
    return world.nft(NODE, "list tables\n")


CONNECTIONS = [
    *itertools.product([("caller", 1), (NODE, 1), ("outside", 1), ("caller", 2)], Family, [Protocol.TCP, Protocol.UDP])
]
"""Who connects to which service, in what family, with which protocol."""
SOME = [connection for number, connection in enumerate(CONNECTIONS) if number in (0, 7, 10, 13)]


@pytest.mark.parametrize(("place", "family", "protocol"), CONNECTIONS if EFFORT >= LONG else SOME)
def test_real_packets_go_as_predicted(
    node: Cluster, place: tuple[str, int], family: Family, protocol: Protocol
) -> None:
    world = node.world
    client, number = place
    address = cluster_ips(number)[family is Family.IPV6]
    source = world[client].address(family)
    with Following(world, client, address, protocol, 3) as following:
        assert "nodeagent-trace-" in tables(world)
        world[client].ask(address, 80, protocol, count=3, timeout=5, source_address=source)
        found = following.result()
    # One that is sent again, because the machine is busy, is of a connection that is tracked already.
    assert re.fullmatch("live: [123] packets, all as predicted", found["live"]), found["packets"]
    assert following.process.returncode == (0 if number == 1 else 1)
    assert "nodeagent-trace-" not in tables(world)
    assert all(packet["steps"] for packet in found["packets"] if packet["agrees"] is not None)


def test_a_packet_that_takes_another_way_is_reported(node: Cluster) -> None:
    """A firewall that comes up after the rules were read."""
    world, address = node.world, cluster_ips(1)[0]
    with Following(world, "caller", address, Protocol.TCP, 2) as following:
        world.nft(NODE, "table inet late { chain f { type filter hook forward priority 0; tcp dport 8080 drop; }; }")
        try:
            world["caller"].ask(address, 80, count=2, timeout=0.5)
            found = following.result()
        finally:
            world.nft(NODE, "delete table inet late")
    assert "did not go as predicted, the first one to late f" in found["live"], found["packets"]
    assert following.process.returncode == 1


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_nothing_stays_when_it_is_ended(node: Cluster, end: signal.Signals) -> None:
    world = node.world
    before = tables(world)
    with Following(world, "caller", cluster_ips(1)[0], Protocol.TCP, 1) as following:
        assert "nodeagent-trace-" in tables(world)
        following.process.send_signal(end)
        following.process.communicate(timeout=DEADLINE_SECONDS)
        assert tables(world) == before
