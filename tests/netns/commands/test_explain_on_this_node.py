"""What the node does to connections is in the first line of `nodeagent explain`; each fault has its cure as control."""

import pytest

from nodeagent.lab.net.topology import NO_BRIDGE
from tests.harness.cluster import NODE, TARGET_PORT, UNTHROTTLED, Cluster
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import WatchedNode

BRIDGE = NO_BRIDGE
HTTP = (service_port(80, name="http"),)
WEB, OTHER = "10.96.8.1", "10.96.8.2"
HEALTHY = ("healthy: 1 of 1 endpoints used",)


@pytest.fixture(scope="module")
def watched(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> WatchedNode:
    """Two Services with an endpoint each, and an agent that has programmed them."""
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    watched.world.write_sysctls(NODE, UNTHROTTLED)
    for name, ip, pod, place in (("web", WEB, "web-0", "10.244.1.10"), ("other", OTHER, "web-1", "10.244.1.11")):
        watched.world[pod].serve(TARGET_PORT)
        service = make_service(name, ip, ports=HTTP)
        watched.cluster.manifests.put(
            make_slice(service, [make_endpoint(place, NODE)], target_port=TARGET_PORT), service
        )
    watched.start()
    return watched


def works(watched: WatchedNode, ip: str = WEB) -> bool:
    return watched.world["caller"].ask(ip, 80, timeout=2.0).only.failure is None


def test_forwarding_that_is_off(watched: WatchedNode) -> None:
    assert watched.eventually("web", says=HEALTHY) == 0
    assert works(watched)
    watched.world.write_sysctls(NODE, {"/proc/sys/net/ipv4/ip_forward": "0"})
    try:
        code, line = watched.explain("web")
        assert not works(watched)
    finally:
        watched.world.write_sysctls(NODE, {"/proc/sys/net/ipv4/ip_forward": "1"})
    assert (code, line.startswith("broken: ")) == (1, True), line
    assert "net.ipv4.ip_forward is 0" in line
    assert "; sysctl -w net.ipv4.ip_forward=1" in line
    assert watched.eventually("web", says=HEALTHY) == 0


CLOSED = "table inet shut { chain f { type filter hook forward priority 0; policy drop; }; }"


@pytest.mark.parametrize("client", [(), ("--from", "10.244.1.11")], ids=["anybody", "one pod"])
def test_a_chain_that_forwards_nothing(watched: WatchedNode, client: tuple[str, ...]) -> None:
    assert watched.eventually("web", *client, says=HEALTHY) == 0
    watched.world.nft(NODE, CLOSED)
    try:
        code, line = watched.explain("web", *client)
        assert not works(watched)
    finally:
        watched.world.nft(NODE, "delete table inet shut")
    assert (code, line.startswith("broken: connections of ")) == (1, True), line
    assert "forward: inet shut, chain f: the policy of the chain" in line
    assert watched.eventually("web", *client, says=HEALTHY) == 0
    assert works(watched)


@pytest.mark.parametrize(
    ("hook", "rule"),
    [("forward priority 0", "ip daddr 10.244.1.10 drop"), ("prerouting priority -150", f"ip daddr {WEB} drop")],
    ids=["its pod", "its ClusterIP"],
)
def test_a_rule_for_one_service_may_be_a_policy_and_is_named(watched: WatchedNode, hook: str, rule: str) -> None:
    """Nobody knows what a rule against one Service is for: it is in the first line, and the Service stays healthy."""
    assert watched.eventually("web", says=HEALTHY) == 0
    watched.world.nft(NODE, f"table inet shut {{ chain f {{ type filter hook {hook}; {rule}; }}; }}")
    try:
        code, line = watched.explain("web")
        assert (works(watched), works(watched, OTHER)) == (False, True)
        assert watched.explain("web", "--from", "10.244.1.11")[0] == 1
        assert watched.explain("other") == (0, HEALTHY[0])
        assert watched.explain() == (0, "healthy: 2 Services")
        assert watched.run("check").stdout.startswith("healthy"), watched.run("check").stdout
    finally:
        watched.world.nft(NODE, "delete table inet shut")
    assert (code, line.startswith(f"{HEALTHY[0]}; connections of pods of this node")) == (0, True), line
    assert f"to {WEB}:80/TCP fail, perhaps on purpose: {hook.partition(' ')[0]}: inet shut, chain f: {rule}" in line
    assert watched.eventually("web", says=HEALTHY) == 0
    assert watched.explain("web") == (0, HEALTHY[0])
    assert works(watched)


def test_a_chain_that_translates_first(watched: WatchedNode) -> None:
    watched.world.nft(NODE, "table ip early { chain p { type nat hook prerouting priority -110; }; }")
    code, line = watched.explain("web")
    watched.world.nft(NODE, "delete table ip early")
    assert (code, "hook order: ip early, chain p translates in prerouting" in line) == (1, True), line
    assert watched.eventually("web", says=HEALTHY) == 0
