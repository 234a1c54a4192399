"""Hints give a zone endpoints that do not answer, while others would: the first line of `nodeagent explain` names the zone."""

import pytest
from msgspec.structs import replace

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.objects import EndpointHints, ForZone
from tests.harness.cluster import HTTP, NODE, TARGET_PORT, UNTHROTTLED, Cluster, cluster_ips
from tests.harness.objects import make_endpoint, make_node, make_service, make_slice
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.following import WatchedNode

ADDRESS = cluster_ips(1)[0]
NEAR, FAR = "10.244.1.11", "10.244.2.10"
QUESTIONS = 20


@pytest.fixture(scope="module")
def watched(cluster: Cluster, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory) -> WatchedNode:
    """A Service with an endpoint for each of two zones; nobody listens at that of zone-a."""
    watched = WatchedNode(cluster, warm_launcher, tmp_path_factory.mktemp("socket"))
    watched.world.write_sysctls(NODE, UNTHROTTLED)
    watched.world["far-0"].serve(TARGET_PORT)
    service = make_service("spread", ADDRESS, ports=HTTP)
    places = ((NEAR, NODE, "zone-a"), (FAR, "node-b", "zone-b"))
    endpoints = [
        replace(make_endpoint(address, node, zone=zone), hints=EndpointHints((ForZone(zone),)))
        for address, node, zone in places
    ]
    cluster.manifests.put(make_slice(service, endpoints, target_port=TARGET_PORT), service)
    watched.start()
    return watched


def in_zone(watched: WatchedNode, zone: str | None) -> None:
    watched.cluster.manifests.put(make_node(NODE, watched.world[NODE].addresses, zone=zone))


def failures(watched: WatchedNode) -> int:
    return watched.world["caller"].ask(ADDRESS, 80, count=QUESTIONS).failures[Failure.REFUSED]


def test_a_zone_whose_endpoints_refuse_is_named(watched: WatchedNode) -> None:
    in_zone(watched, "zone-a")
    says = (
        "broken: 1 of 1 endpoints refuse connections, because nobody listens there",
        f"{NEAR}:{TARGET_PORT}",
        "; hints leave zone zone-a only these, and 1 more to others; ",
    )
    assert watched.eventually("spread", says=says) == 1
    assert failures(watched) == QUESTIONS


@pytest.mark.parametrize("zone", [None, "zone-c"], ids=["no zone", "a zone that no hint names"])
def test_another_zone_is_well_and_where_hints_do_not_count_half_of_all_fail(
    watched: WatchedNode, zone: str | None
) -> None:
    in_zone(watched, "zone-b")
    assert watched.eventually("spread", says=("healthy: 1 of 2 endpoints used",)) == 0
    assert failures(watched) == 0
    in_zone(watched, zone)
    assert watched.eventually("spread", says=("impaired: 1 of 2 endpoints refuse connections",)) == 1
    assert "hints" not in watched.explain("spread")[1]
    assert 0 < failures(watched) < QUESTIONS
