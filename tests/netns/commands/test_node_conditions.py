"""Conditions of the node are watched while the agent runs: `nodeagent problems` has them, and drops them after the cure."""

import time

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE
from nodeagent.model.addresses import Protocol
from nodeagent.proxy.dataplane.node_conditions import LOOK_SECONDS
from tests.harness.cluster import NODE, Cluster
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.trace.planted_connections import connections

pytestmark = pytest.mark.slow

BRIDGE = NO_BRIDGE
STRICT, LOOSE = (f"/proc/sys/net/ipv4/conf/{name}/rp_filter" for name in ("eth0", "all"))
FORWARDING = "/proc/sys/net/ipv4/ip_forward"


LATEST_SECONDS = 10.0
STRAY = "203.0.113.2"


@pytest.fixture(scope="module")
def watched(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> WatchedNode:
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    watched.start()
    return watched


def problems(watched: WatchedNode) -> str:
    return watched.run("problems", "--socket", str(watched.socket)).stdout


def in_time(watched: WatchedNode, says: str) -> None:
    begun = time.monotonic()
    wait_for(lambda: says in problems(watched), lambda: problems(watched))
    assert time.monotonic() - begun < LATEST_SECONDS


def healthy(watched: WatchedNode) -> bool:
    return problems(watched).startswith("healthy: no problems\n")


def stray_packet(watched: WatchedNode) -> None:
    """From a host behind eth0 to the node."""
    address = watched.world[NODE].address()
    watched.world["outside"].ask(address, 9, Protocol.UDP, timeout=0.2)


def test_forwarding_that_somebody_turns_off(watched: WatchedNode) -> None:
    wait_for(lambda: problems(watched).startswith("healthy: no problems\n"), lambda: problems(watched))
    watched.world.write_sysctls(NODE, {FORWARDING: "0"})
    wait_for(lambda: "sysctl -w net.ipv4.ip_forward=1" in problems(watched), lambda: problems(watched))
    assert problems(watched).startswith("not healthy: sysctl net.ipv4.ip_forward, because ")
    watched.world.write_sysctls(NODE, {FORWARDING: "1"})
    wait_for(lambda: problems(watched).startswith("healthy: no problems\n"), lambda: problems(watched))


def test_packets_that_the_reverse_path_filter_drops(watched: WatchedNode) -> None:
    """Control: while the way back is the one they came by, the strict filter drops nothing, and is no problem."""
    wait_for(lambda: healthy(watched), lambda: problems(watched))
    watched.world.write_sysctls(NODE, {STRICT: "1"})
    stray_packet(watched)
    time.sleep(1.2 * LOOK_SECONDS)
    assert healthy(watched), problems(watched)
    watched.world.run(NODE, ["ip", "route", "add", STRAY, "dev", "caller"])
    time.sleep(1.2 * LOOK_SECONDS)
    assert healthy(watched), "asymmetric, and nothing was dropped"
    stray_packet(watched)
    in_time(watched, "ReversePathDrops")
    assert "sysctl -w net.ipv4.conf.all.rp_filter=2" in problems(watched)
    watched.world.write_sysctls(NODE, {LOOSE: "2"})
    in_time(watched, "healthy: no problems\n")
    watched.world.run(NODE, ["ip", "route", "del", STRAY, "dev", "caller"])
    watched.world.write_sysctls(NODE, {STRICT: "0", LOOSE: "0"})


def test_source_ports_that_run_out(watched: WatchedNode) -> None:
    """Control: half of them are enough."""
    wait_for(lambda: healthy(watched), lambda: problems(watched))
    with connections(watched.world, Protocol.TCP, 32000):
        time.sleep(1.2 * LOOK_SECONDS)
        assert healthy(watched), problems(watched)
    with connections(watched.world, Protocol.TCP, 62000):
        in_time(watched, "SourcePortsShort")
        found = problems(watched)
        assert "more than 90% of the 64512 ports of 10.244.1.1 towards 10.244.1.10:8080/TCP are taken" in found
        assert "conntrack -L -r 10.244.1.10" in found
    in_time(watched, "healthy: no problems\n")


def test_a_chain_of_others_that_translates_before_ours(watched: WatchedNode) -> None:
    """Control: where iptables has its chains is behind ours."""
    wait_for(lambda: healthy(watched), lambda: problems(watched))
    chain = "{ type nat hook prerouting priority %d; }"
    watched.world.run(NODE, ["nft", "add table ip other; add chain ip other late " + chain % -100])
    time.sleep(1.2 * LOOK_SECONDS)
    assert healthy(watched), problems(watched)
    watched.world.run(NODE, ["nft", "add chain ip other early " + chain % -110])
    in_time(watched, "ip other, chain early translates in prerouting at -110, before ours at -105")
    assert "TranslatedBefore" in problems(watched)
    assert "give it a priority above -105" in problems(watched)
    watched.world.run(NODE, ["nft", "delete table ip other"])
    in_time(watched, "healthy: no problems\n")
