"""Traffic stays near: hints for this node's zone and for this node, and the node's label followed while it runs."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.objects import Endpoint, EndpointHints, ForNode, ForZone, Service
from tests.harness.cluster import NODE, TARGET_PORT, WITH_POD_CIDRS, cluster_ips
from tests.harness.objects import make_endpoint, make_node, make_service, make_slice, service_port
from tests.harness.serving_node import ServingNode
from tests.harness.stopwatch import allowed

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
NODE_PORT = 30080
CLUSTER_IPS = cluster_ips(1)
SERVICE = make_service("web", *CLUSTER_IPS, ports=[service_port(80, node_port=NODE_PORT)])
HOMES = {"web-0": NODE, "web-1": NODE, "web-2": NODE, "far-0": "node-b"}

Hints = dict[str, EndpointHints | None]


def hint(*zones: str, nodes: Sequence[str] = ()) -> EndpointHints:
    return EndpointHints(tuple(map(ForZone, zones)), tuple(map(ForNode, nodes)) or None)


ZONED: Hints = {
    "web-0": hint("zone-a"),
    "web-1": hint("zone-a", "zone-b"),
    "web-2": hint("zone-b"),
    "far-0": hint("zone-c"),
}
ONE_UNHINTED: Hints = {**ZONED, "far-0": None}
BY_NODE: Hints = {
    "web-0": hint("zone-b", nodes=[NODE]),
    "web-1": hint("zone-b", nodes=["node-b"]),
    "far-0": hint("zone-a", nodes=["node-b"]),
}
NODE_WITHOUT: Hints = {
    "web-0": hint("zone-a", nodes=["node-c"]),
    "web-1": hint("zone-b", nodes=["node-c"]),
    "far-0": hint("zone-a", nodes=["node-b"]),
}
EVERYBODY = {"web-0", "web-1", "web-2", "far-0"}


@pytest.fixture(scope="module")
def running(served: ServingNode) -> ServingNode:
    served.run_agent(*WITH_POD_CIDRS)
    return served


def hinted(served: ServingNode, service: Service, hints: Hints) -> None:
    """Apply the service with these endpoints."""
    for family in Family:
        endpoints: list[Endpoint] = []
        for pod, advice in hints.items():
            endpoint = make_endpoint(served.world[pod].address(family), HOMES[pod])
            endpoints.append(replace(endpoint, hints=advice))
        served.apply(make_slice(service, endpoints, family, target_port=TARGET_PORT), service)


def label(served: ServingNode, zone: str | None) -> None:
    """Change the zone of the Node object."""
    served.apply(make_node(NODE, served.world[NODE].addresses, zone=zone))


def answering(served: ServingNode, client: str, address: str, port: int = 80) -> set[str]:
    survey = served.world[client].ask(address, port, count=60)
    assert not survey.failures
    return set(survey.names)


def of(family: Family, addresses: Sequence[str]) -> str:
    return next(address for address in addresses if family_of(address) is family)


@pytest.mark.parametrize(
    ("hints", "zone", "pods"),
    [
        pytest.param(ZONED, "zone-a", {"web-0", "web-1"}, id="the endpoints hinted for the zone"),
        pytest.param(ZONED, "zone-b", {"web-1", "web-2"}, id="another zone, others"),
        pytest.param(ZONED, "zone-c", {"far-0"}, id="a zone whose only endpoint is on another node"),
        pytest.param(ZONED, "zone-x", EVERYBODY, id="a zone nobody is hinted for"),
        pytest.param(ZONED, None, EVERYBODY, id="a node without a zone"),
        pytest.param(ONE_UNHINTED, "zone-a", EVERYBODY, id="one endpoint without hints disables them"),
        pytest.param(BY_NODE, "zone-a", {"web-0"}, id="the node before the zone"),
        pytest.param(NODE_WITHOUT, "zone-a", {"web-0", "far-0"}, id="no endpoint for the node: the zone"),
    ],
)
def test_who_is_near(running: ServingNode, hints: Hints, zone: str | None, pods: set[str]) -> None:
    label(running, zone)
    hinted(running, SERVICE, hints)
    for family in Family:
        assert answering(running, "caller", of(family, CLUSTER_IPS)) == pods
        assert answering(running, "outside", of(family, running.world[NODE].addresses), NODE_PORT) == pods


@FAMILIES
def test_a_changed_zone_label_moves_the_traffic_at_once(running: ServingNode, family: Family) -> None:
    label(running, "zone-a")
    hinted(running, SERVICE, ZONED)
    with running.world["caller"].load(of(family, CLUSTER_IPS), 80, interval=0.002) as load:
        running.agent.wait_until(lambda: set(load.report().names) == {"web-0", "web-1"}, "traffic in zone-a")
        label(running, "zone-c")
        running.agent.wait_until(lambda: "far-0" in load.report().names, "traffic in zone-c")
        report = load.stop()

    assert not report.failures
    assert set(report.names) == {"web-0", "web-1", "far-0"}
    assert max(report.last["web-0"], report.last["web-1"]) - report.first["far-0"] < allowed(0.1)


def test_a_local_policy_asks_for_no_hints(running: ServingNode) -> None:
    label(running, "zone-b")
    spec = replace(SERVICE.spec, internal_traffic_policy="Local", external_traffic_policy="Local")
    hinted(running, replace(SERVICE, spec=spec), ZONED)
    for family in Family:
        here = {"web-0", "web-1", "web-2"}
        assert answering(running, "caller", of(family, CLUSTER_IPS)) == here
        assert answering(running, "outside", of(family, running.world[NODE].addresses), NODE_PORT) == here
