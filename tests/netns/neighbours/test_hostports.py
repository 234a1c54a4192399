"""Ports that others publish on the node's addresses, beside a ClusterIP with the same port.

A ClusterIP is an address of the node, so `--dst-type LOCAL` (`fib daddr type local`) matches it as well. Our chains run
before theirs, in any order of registration.
"""

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE, cluster_ips, of_family

from .scene import SHOP, SHOP_BY_CHANCE, UNSERVED, Neighbour, Scene, alone, settings

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
CLIENTS = ("caller", "outside", NODE)
NOBODYS = cluster_ips(99)
TAKES_EVERY_ADDRESS = {"portmap": (NODE,)}
"""Rules that do not ask in prerouting whether the destination is local, and whom they treat like the others do."""
HOST_PORTS = (
    Neighbour("portmap.nft"),
    Neighbour("portmap.iptables", "iptables-legacy"),
    Neighbour("docker.iptables", "iptables-nft"),
    Neighbour("docker.nft"),
)
SHOPS = pytest.mark.parametrize("shop", [pytest.param(SHOP, id="chosen"), pytest.param(SHOP_BY_CHANCE, id="by chance")])
BESIDE = pytest.mark.parametrize("beside", settings(*HOST_PORTS), indirect=True, ids=str)


@BESIDE
@FAMILIES
@SHOPS
@pytest.mark.parametrize("client", CLIENTS)
def test_the_cluster_ip_leads_to_its_endpoints(
    beside: Scene, client: str, shop: tuple[str, str], family: Family
) -> None:
    survey = beside.world[client].ask(of_family(family, shop), 443, count=10)

    assert not survey.failures
    assert survey.names.keys() <= {"web-0", "web-1"}


@BESIDE
@FAMILIES
@pytest.mark.parametrize("client", CLIENTS)
def test_the_published_port_answers_at_the_addresses_of_the_node(beside: Scene, client: str, family: Family) -> None:
    survey = beside.world[client].ask(beside.world[NODE].address(family), 443, count=5)

    assert survey.names == {"web-2": 5}


@BESIDE
@FAMILIES
@SHOPS
def test_a_port_that_the_cluster_ip_does_not_serve_is_refused(
    beside: Scene, shop: tuple[str, str], family: Family
) -> None:
    """Though a daemon of the node listens on it, at every address."""
    for client in CLIENTS:
        answer = beside.world[client].ask(of_family(family, shop), UNSERVED).only
        assert answer.failure is Failure.REFUSED, client


@BESIDE
@FAMILIES
def test_an_address_that_no_service_has_is_not_local_and_not_theirs(
    beside: Scene, family: Family, request: pytest.FixtureRequest
) -> None:
    """Nor is one of another proxy, which nothing tells from it: hence no range is local (docs/decisions/0080)."""
    neighbour = str(request.node.callspec.params["beside"].neighbour)
    address = of_family(family, NOBODYS)
    for client in TAKES_EVERY_ADDRESS.get(neighbour, CLIENTS):
        answer = beside.world[client].ask(address, 443, timeout=0.3).only
        assert answer.failure in {Failure.TIMEOUT, Failure.DENIED}, client


@BESIDE
@FAMILIES
def test_a_cluster_ip_would_be_taken_by_a_host_port_if_it_were_local(beside: Scene, family: Family) -> None:
    """The control."""
    beside.hold_addresses(*NOBODYS)
    try:
        survey = beside.world["caller"].ask(of_family(family, NOBODYS), 443)
    finally:
        beside.release_addresses()

    assert survey.names == {"web-2": 1}


@pytest.mark.parametrize("beside", alone(*HOST_PORTS), indirect=True, ids=str)
@FAMILIES
def test_without_the_agent_a_local_address_is_captured(beside: Scene, family: Family) -> None:
    """The control: this is what the rules do with an address that nobody translates before them."""
    for client in CLIENTS:
        assert beside.world[client].ask(of_family(family, SHOP), 443).names == {"web-2": 1}, client
