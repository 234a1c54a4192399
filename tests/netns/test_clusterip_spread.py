"""A ClusterIP spreads connections evenly over its endpoints: from everywhere, in both families, in all protocols."""

import pytest

from nodeagent.lab.net.survey import evenness
from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.objects import service_port

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)
CLIENTS = pytest.mark.parametrize(
    "client",
    [
        pytest.param("caller", id="pod"),
        pytest.param("node-a", id="node"),
        pytest.param("outside", id="outside"),
    ],
)

FALSE_ALARM = 1e-8
"""Of one test with a fair choice; all tests of this file together stay below one in a million."""
CONNECTIONS = 400
SOURCE_PORT = 20_000
"""Not one that the kernel gives to others: it would still know an earlier connection from there to the same endpoint."""
LOCAL = ("web-0", "web-1", "web-2")
EVERYWHERE = (*LOCAL, "far-0")
ONE, TWO, FOUR = cluster_ips(1), cluster_ips(2), cluster_ips(4)
PORTS = tuple(service_port(80, protocol, name=protocol.name.lower()) for protocol in Protocol)


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    """Three services, each with all protocols on port 80, with one, two and four endpoints."""
    for pod in EVERYWHERE:
        for protocol in Protocol:
            cluster.world[pod].serve(8080, protocol)
    cluster.expose("one", *ONE, pods=LOCAL[:1], ports=PORTS)
    cluster.expose("two", *TWO, pods=LOCAL[:2], ports=PORTS)
    cluster.expose("four", *FOUR, pods=EVERYWHERE, ports=PORTS)
    cluster.start_agent(*WITH_POD_CIDRS)
    return cluster


@PROTOCOLS
@FAMILIES
@CLIENTS
def test_every_endpoint_gets_its_share(served: Cluster, client: str, family: Family, protocol: Protocol) -> None:
    survey = served.world[client].ask(of_family(family, FOUR), 80, protocol, count=CONNECTIONS)

    assert not survey.failures
    assert evenness(survey.names, EVERYWHERE) > FALSE_ALARM, survey.names


@FAMILIES
@pytest.mark.parametrize(
    ("addresses", "pods"),
    [pytest.param(ONE, LOCAL[:1], id="one endpoint"), pytest.param(TWO, LOCAL[:2], id="two endpoints")],
)
def test_services_of_other_sizes_are_as_even(
    served: Cluster, addresses: tuple[str, str], pods: tuple[str, ...], family: Family
) -> None:
    survey = served.world["caller"].ask(of_family(family, addresses), 80, count=CONNECTIONS)

    assert not survey.failures
    assert evenness(survey.names, pods) > FALSE_ALARM, survey.names


@PROTOCOLS
@FAMILIES
def test_a_conversation_stays_with_its_endpoint(served: Cluster, protocol: Protocol, family: Family) -> None:
    with served.world["caller"].hold(of_family(family, FOUR), 80, protocol, count=10) as held:
        chosen = [answer.name for answer in held.opened]
        later = [[answer.name for answer in held.ask()] for _ in range(5)]

    assert len(chosen) == 10
    assert set(chosen) <= set(EVERYWHERE)
    assert later == [chosen] * 5


@PROTOCOLS
@FAMILIES
def test_the_endpoint_is_reached_at_its_own_address_and_port(
    served: Cluster, family: Family, protocol: Protocol
) -> None:
    answer = served.world["caller"].ask(of_family(family, ONE), 80, protocol, source_port=SOURCE_PORT).only

    assert (answer.local, answer.local_port) == (served.world["web-0"].address(family), 8080)
    assert (answer.peer, answer.peer_port) == (served.world["caller"].address(family), SOURCE_PORT)
