"""A fault is planted where a connection works, and breaks it: the first line of `explain` or `check` names it.

`nodeagent problems` and the figure that its alert reads have it within ten seconds where it is a condition that the agent watches. After
the cure everything is quiet again, which is the control of the next one.
"""

from pathlib import Path

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE, UNDERLAY
from nodeagent.lab.net.wiring import ROUTER
from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE, TARGET_PORT, UNTHROTTLED, Cluster, cluster_ips
from tests.harness.objects import make_service, make_slices
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.faults.looks import appears, first_line, works
from tests.netns.faults.scenes import CHECK, EXPLAIN_FAR, HOSTED_PORT, OF_ROUTES, OF_RULES, POD_TO_FAR, VIP, Fault

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

BRIDGE = NO_BRIDGE
GATEWAY = ROUTER[Family.IPV4]
TWIN = "02:00:00:00:00:77"
"""The link address of another host."""
PATIENCE_SECONDS = 20.0
SERVICES = {
    "web": ("web-0", 0),
    "far": ("far-0", 0),
    "hosted": (NODE, 0),
    "balanced": ("web-1", 0),
    "far6": ("far-0", 1),
}
"""Each with one endpoint, of the first family or the second."""


@pytest.fixture(scope="module")
def watched(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> WatchedNode:
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    world = watched.world
    world.write_sysctls(NODE, UNTHROTTLED)
    for pod in ("web-0", "web-1", "far-0"):
        world[pod].serve(TARGET_PORT)
    world[NODE].serve(HOSTED_PORT)
    homes = {"far-0": "node-b"}
    for number, (name, (member, family)) in enumerate(SERVICES.items(), start=1):
        balancer = (VIP,) if name == "balanced" else ()
        service = make_service(name, cluster_ips(number)[family], load_balancer_ips=balancer)
        port = HOSTED_PORT if member == NODE else TARGET_PORT
        place = (world[member].addresses[family],)
        cluster.manifests.put(*make_slices(service, [(place, homes.get(member, NODE))], target_port=port), service)
    watched.start()
    return watched


def is_quiet(watched: WatchedNode, fault: Fault) -> bool:
    code, line = first_line(watched, *fault.command)
    return code == 0 and line.startswith("healthy") and ";" not in line


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in (OF_ROUTES | OF_RULES).items()])
def test_a_fault_is_named_in_the_first_line(watched: WatchedNode, fault: Fault) -> None:
    assert works(watched, fault.breaks, PATIENCE_SECONDS)
    wait_for(lambda: is_quiet(watched, fault), lambda: f"quiet: {first_line(watched, *fault.command)}")
    watched.world.run(fault.where, ["sh", "-ec", fault.plant])
    try:
        assert not works(watched, fault.breaks)
        code, line = first_line(watched, *fault.command)
        assert line.startswith(fault.verdict), line
        for text in fault.says:
            assert text in line, line
        assert code == (0 if line.startswith("healthy") else 1)
        if fault.problem:
            appears(watched, fault.problem)
    finally:
        watched.world.run(fault.where, ["sh", "-c", fault.cure])
    watched.world.run(NODE, ["conntrack", "-F"])
    wait_for(lambda: works(watched, fault.breaks), lambda: "it works again")
    wait_for(lambda: is_quiet(watched, fault), lambda: f"quiet: {first_line(watched, *fault.command)}")


@pytest.mark.parametrize(
    ("address", "says", "breaks"),
    [
        pytest.param(GATEWAY, f"several hosts have {GATEWAY} on eth0 ({TWIN} and ", True, id="of the gateway"),
        pytest.param(
            "192.168.0.2", f"another host ({TWIN}) has 192.168.0.2 of this node on eth0", False, id="of this node"
        ),
    ],
)
def test_two_hosts_with_one_address_are_named(watched: WatchedNode, address: str, says: str, breaks: bool) -> None:
    """A host on the network of this node takes an address. Of the gateway's: who answers first gets the packets, and here it is the other
    one at last. No other host of that network sends anything to this node, so that its own address is missed by nobody."""
    world = watched.world

    def first_lines() -> tuple[tuple[int, str], tuple[int, str]]:
        return first_line(watched, *CHECK), first_line(watched, *EXPLAIN_FAR)

    def is_healthy() -> bool:
        return all(code == 0 for code, _ in first_lines())

    wait_for(is_healthy, lambda: f"quiet: {first_lines()}")
    world.run(
        UNDERLAY, ["ip", "link", "add", "twin", "link", NODE, "address", TWIN, "type", "macvlan", "mode", "bridge"]
    )
    world.run(UNDERLAY, ["ip", "link", "set", "twin", "netns", world.namespace("outside")])
    try:
        world.run("outside", ["ip", "link", "set", "twin", "up"])
        wait_for(is_healthy, lambda: f"quiet: {first_lines()}")
        assert works(watched, POD_TO_FAR)
        world.run("outside", ["ip", "address", "add", f"{address}/32", "dev", "twin"])
        (check_code, check), (explain_code, explain) = first_lines()
        if breaks:
            answered = ["ip", "neigh", "replace", address, "lladdr", TWIN, "dev", "eth0", "nud", "reachable"]
            world.run(NODE, answered)
            assert not works(watched, POD_TO_FAR)
    finally:
        world.run("outside", ["ip", "link", "del", "twin"])
    assert (check_code, check.startswith("not healthy: duplicate addresses, because "), says in check) == (
        1,
        True,
        True,
    ), check
    assert explain.startswith(
        "impaired: some IPv4 connections by way of this node may fail, because duplicate addresses: "
    ), explain
    assert (explain_code, says in explain) == (1, True), explain
    world.run(NODE, ["ip", "neigh", "flush", "dev", "eth0"])
    wait_for(lambda: works(watched, POD_TO_FAR), lambda: "it works again")
    wait_for(is_healthy, lambda: f"quiet: {first_lines()}")


def test_rules_of_arp_that_drop_nothing_are_not_named(watched: WatchedNode) -> None:
    harmless = "table arp guard { chain i { type filter hook input priority 0; arp operation reply accept; }; }"
    watched.world.run(NODE, ["nft", harmless])
    try:
        assert first_line(watched, "check") == (0, "healthy")
        watched.world.run(NODE, ["nft", harmless.replace("accept", "drop")])
        assert first_line(watched, "check")[1].startswith("healthy; as far as is known: table arp guard: ")
    finally:
        watched.world.run(NODE, ["nft", "delete table arp guard"])


def test_a_replayed_bundle_names_a_fault_of_routes_and_no_other(watched: WatchedNode, tmp_path: Path) -> None:
    fault = OF_ROUTES["a blackhole for the pods of another node"]
    for number, planted in enumerate(("", fault.plant)):
        watched.world.run(NODE, ["sh", "-c", planted])
        bundle = tmp_path / f"{number}.tar.gz"
        try:
            assert watched.run("bundle", str(bundle), "--socket", str(watched.socket)).returncode == 0
        finally:
            watched.world.run(NODE, ["sh", "-c", fault.cure], check=False)
        lines = [watched.run("replay", str(bundle), "nodeagent", "explain", name).stdout for name in ("web", "far")]
        assert lines[0].startswith("healthy: "), lines
        assert ("of type blackhole applies to it" in lines[1].partition("\n")[0]) is bool(planted), lines
        assert lines[1].startswith("healthy: ") is not bool(planted), lines
