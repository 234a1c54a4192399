"""Rules of other programs, and MTUs, that do no harm or may be meant: the running agent has no problem with them."""

import re

import pytest

from tests.harness.cluster import NODE, Cluster
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import WatchedNode, wait_for
from tests.netns.faults.looks import is_healthy, problems, scrape
from tests.netns.faults.scenes import CURE, guard
from tests.netns.faults.services_of_pods import NAMES, NARROW, SILENCE, USUAL, placed, put_services, width

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

ANSWERS = "ct state established,related accept; meta l4proto ipv6-icmp accept"
PERMITTED = f"{ANSWERS}; ip daddr 10.244.0.0/16 accept; ip6 daddr fd00:244::/32 accept"
_TIMES = re.compile(r"^nodeagent_connections_followed_total ([0-9.]+)", re.MULTILINE)
HARMLESS = {
    "an interface that takes shorter packets": (width("eth0", NARROW), width("eth0", USUAL)),
    "errors that nobody sends": (guard("output", SILENCE), CURE),
    "pods with shorter packets than the way out, as with a tunnel": (
        f"for i in {{wide}}; do {width('$i', 1450)}; done; {guard('output', SILENCE)}",
        f"{CURE}; for i in {{wide}}; do {width('$i', USUAL)}; done",
    ),
    "a policy that lets pods' connections pass": (guard("forward", PERMITTED, policy="drop"), CURE),
    "one Service that a firewall closes": (
        guard("forward", f"{ANSWERS}; ip daddr 10.244.1.10 drop; ip6 daddr fd00:244:1::a drop"),
        CURE,
    ),
    "a Service that is not tracked, and a program of the node answers": (
        guard("prerouting", f"ip daddr {NAMES[0]} notrack; ip6 daddr {NAMES[1]} notrack", -300),
        CURE,
    ),
    "one pod that a policy closes in": (
        guard("forward", f"{ANSWERS}; ip saddr {{pod}} drop; ip6 saddr {{pod6}} drop"),
        CURE,
    ),
}


@pytest.fixture(scope="module")
def watched(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> WatchedNode:
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    put_services(watched)
    watched.start()
    return watched


def times_followed(watched: WatchedNode) -> float:
    found = _TIMES.search(scrape(watched))
    return 0.0 if found is None else float(found[1])


@pytest.mark.parametrize(("plant", "cure"), [pytest.param(*one, id=name) for name, one in HARMLESS.items()])
def test_a_harmless_rule_is_examined_and_is_not_a_problem(watched: WatchedNode, plant: str, cure: str) -> None:
    wait_for(lambda: times_followed(watched) > 0, lambda: "connections are followed")
    before = times_followed(watched)
    watched.world.run(NODE, ["sh", "-ec", placed(watched, plant)])
    try:
        wait_for(lambda: times_followed(watched) > before, lambda: "connections are followed again")
        assert is_healthy(watched), problems(watched)
    finally:
        watched.world.run(NODE, ["sh", "-c", placed(watched, cure)])
