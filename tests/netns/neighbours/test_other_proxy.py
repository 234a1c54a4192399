"""Another proxy serves Services of the same range (label service.kubernetes.io/service-proxy-name).

Its chains are at dstnat, after ours. What nobody has translated by then is dropped, so an address that no Service has
never reaches a daemon of the node.
"""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import LABEL_PROXY_NAME
from tests.harness.cluster import NODE, Cluster, cluster_ips, of_family
from tests.harness.objects import make_service, service_port

from .scene import NODE_PORT, OTHER, SHOP, UNSERVED, Neighbour, Scene, alone, settings

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
CLIENTS = ("caller", "outside", NODE)
NOBODYS = cluster_ips(99)
PROXIES = (
    Neighbour("other-proxy.nft"),
    Neighbour("other-proxy.iptables", "iptables-legacy"),
)
BESIDE = pytest.mark.parametrize("beside", settings(*PROXIES), indirect=True, ids=str)
BESIDE_ONE = pytest.mark.parametrize("beside", settings(PROXIES[0])[:2], indirect=True, ids=str)
NO_ANSWER = {Failure.TIMEOUT, Failure.DENIED}
"""Of a packet that is dropped; one from the node itself is not let out."""


@pytest.fixture(scope="module")
def prepare() -> Callable[[Cluster], None]:
    return put_service_of_another


def put_service_of_another(cluster: Cluster) -> None:
    """The other proxy's Service is in the cluster like ours."""
    service = make_service("others", *OTHER, ports=(service_port(80),))
    cluster.manifests.put(replace(service, metadata=replace(service.metadata, labels={LABEL_PROXY_NAME: "another"})))


@BESIDE
@PROTOCOLS
@FAMILIES
def test_its_services_lead_to_its_endpoints(beside: Scene, family: Family, protocol: Protocol) -> None:
    for client in CLIENTS:
        survey = beside.world[client].ask(of_family(family, OTHER), 80, protocol, count=3)
        assert survey.names == {"web-2": 3}, client


@BESIDE
@FAMILIES
def test_its_endpoint_may_be_the_node_itself(beside: Scene, family: Family) -> None:
    for client in CLIENTS:
        answer = beside.world[client].ask(of_family(family, OTHER), 81).only
        assert (answer.name, answer.local_port) == (NODE, NODE_PORT), client


@BESIDE
@PROTOCOLS
@FAMILIES
def test_our_services_lead_to_our_endpoints(beside: Scene, family: Family, protocol: Protocol) -> None:
    for client in CLIENTS:
        survey = beside.world[client].ask(of_family(family, SHOP), 443, protocol, count=3)
        assert not survey.failures, client
        assert survey.names.keys() <= {"web-0", "web-1"}, client


@BESIDE_ONE
@PROTOCOLS
@FAMILIES
def test_an_address_that_no_service_has_answers_nobody(beside: Scene, family: Family, protocol: Protocol) -> None:
    for client in CLIENTS:
        answer = beside.world[client].ask(of_family(family, NOBODYS), 80, protocol, timeout=0.3).only
        assert answer.failure in NO_ANSWER, client


@BESIDE_ONE
@PROTOCOLS
@FAMILIES
def test_nor_does_the_node_where_it_has_the_address(beside: Scene, family: Family, protocol: Protocol) -> None:
    """Left over on some interface, it is local, and a daemon listens on port 80 of every address."""
    beside.hold_addresses(*NOBODYS)
    try:
        failures = {
            client: beside.world[client].ask(of_family(family, NOBODYS), 80, protocol, timeout=0.3).only.failure
            for client in CLIENTS
        }
    finally:
        beside.release_addresses()

    assert set(failures.values()) <= NO_ANSWER, failures


@BESIDE
@PROTOCOLS
@FAMILIES
def test_a_port_that_our_service_does_not_have_is_refused(beside: Scene, family: Family, protocol: Protocol) -> None:
    for client in CLIENTS:
        answer = beside.world[client].ask(of_family(family, SHOP), UNSERVED, protocol).only
        assert answer.failure in {Failure.REFUSED, Failure.DENIED}, client


@pytest.mark.parametrize("beside", alone(*PROXIES), indirect=True, ids=str)
@FAMILIES
def test_the_other_proxy_works_alone(beside: Scene, family: Family) -> None:
    """The control: its rules are right, so when they do not work beside us, it is because of us."""
    for client in CLIENTS:
        assert beside.world[client].ask(of_family(family, OTHER), 80).names == {"web-2": 1}, client


@pytest.mark.parametrize("beside", alone(PROXIES[0]), indirect=True, ids=str)
@FAMILIES
def test_without_the_agent_the_daemon_answers(beside: Scene, family: Family) -> None:
    """The control: nothing but our rules keeps the node's daemon off an address that the node has."""
    for client in CLIENTS:
        assert beside.world[client].ask(of_family(family, SHOP), 80).names == {"daemon": 1}, client
