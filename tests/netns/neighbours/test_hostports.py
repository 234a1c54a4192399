"""Ports that others publish on the node's addresses, beside a ClusterIP with the same port.

A ClusterIP is an address of the node, so `--dst-type LOCAL` (`fib daddr type local`) matches it as well. Our chains run
before theirs, whoever registered first.
"""

import pytest

from nodeagent.lab.net.requests import Failure
from nodeagent.model.addresses import Family
from tests.harness.cluster import NODE, of_family

from .scene import SHOP, UNSERVED, Neighbour, Scene, alone, settings

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
CLIENTS = ("caller", "outside", NODE)
HOST_PORTS = (
    Neighbour("portmap.nft"),
    Neighbour("portmap.iptables", "iptables-legacy"),
    Neighbour("docker.iptables", "iptables-nft"),
    Neighbour("docker.nft"),
)
BESIDE = pytest.mark.parametrize("beside", settings(*HOST_PORTS), indirect=True, ids=str)


@BESIDE
@FAMILIES
@pytest.mark.parametrize("client", CLIENTS)
def test_the_cluster_ip_leads_to_its_endpoints(beside: Scene, client: str, family: Family) -> None:
    survey = beside.world[client].ask(of_family(family, SHOP), 443, count=10, timeout=1)

    assert not survey.failures
    assert survey.names.keys() <= {"web-0", "web-1"}


@BESIDE
@FAMILIES
@pytest.mark.parametrize("client", CLIENTS)
def test_the_published_port_answers_at_the_addresses_of_the_node(beside: Scene, client: str, family: Family) -> None:
    survey = beside.world[client].ask(beside.world[NODE].address(family), 443, count=5, timeout=1)

    assert survey.names == {"web-2": 5}


@BESIDE
@FAMILIES
def test_a_port_that_the_cluster_ip_does_not_serve_is_refused(beside: Scene, family: Family) -> None:
    """Though a daemon of the node listens on it, at every address."""
    for client in CLIENTS:
        answer = beside.world[client].ask(of_family(family, SHOP), UNSERVED, timeout=1).only
        assert answer.failure is Failure.REFUSED, client


@pytest.mark.parametrize("beside", alone(*HOST_PORTS), indirect=True, ids=str)
@FAMILIES
def test_without_the_agent_a_local_address_is_captured(beside: Scene, family: Family) -> None:
    """The control: this is what the rules do with an address that nobody translates before them."""
    for client in CLIENTS:
        assert beside.world[client].ask(of_family(family, SHOP), 443, timeout=1).names == {"web-2": 1}, client
