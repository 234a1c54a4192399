"""firewalld with its default zone: it rejects what is not translated and lets through what is (`ct status dnat accept`).

Its chains come ten after the usual priorities. So services work beside it without configuration; the node's own sockets
(health check ports, a host's daemons) need to be opened as ever. With pods behind a bridge: test_firewalls_beside_bridges.py.
"""

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.lab.net.topology import NO_BRIDGE
from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import NODE, of_family
from tests.harness.lost_packets import PATIENT, nothing_resent

from .scene import HOSTED, NODE_PORT, SHOP, SHOP_NODE_PORT, UNSERVED, Neighbour, Scene, settings

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
BRIDGE = NO_BRIDGE
CLIENTS = ("caller", "outside", NODE)
FIREWALLD = Neighbour("firewalld.nft")
BESIDE = pytest.mark.parametrize("beside", settings(FIREWALLD), indirect=True, ids=str)
RELOADS = 20


@BESIDE
@PROTOCOLS
@FAMILIES
def test_services_work(beside: Scene, family: Family, protocol: Protocol) -> None:
    for client in CLIENTS:
        survey = beside.world[client].ask(of_family(family, SHOP), 443, protocol, count=3)
        assert not survey.failures, client
        assert survey.names.keys() <= {"web-0", "web-1"}, client


@BESIDE
@FAMILIES
def test_node_ports_work_without_being_opened(beside: Scene, family: Family) -> None:
    for client in ("outside", "node-b"):
        survey = beside.world[client].ask(beside.world[NODE].address(family), SHOP_NODE_PORT, count=3)
        assert not survey.failures, client
        assert survey.names.keys() <= {"web-0", "web-1"}, client


@BESIDE
@FAMILIES
def test_an_endpoint_on_the_node_itself_is_reached(beside: Scene, family: Family) -> None:
    """The port it listens on is closed to everybody who asks for it directly."""
    for client in ("caller", "outside"):
        asked = beside.world[client]
        assert asked.ask(of_family(family, HOSTED), 80).names == {NODE: 1}, client
        assert asked.ask(beside.world[NODE].address(family), NODE_PORT, timeout=1).only.failure, client


@BESIDE
@FAMILIES
def test_the_firewall_is_in_force(beside: Scene, family: Family) -> None:
    """The control: the same endpoint, not through the Service, and a daemon of the node."""
    outside = beside.world["outside"]

    assert outside.ask(beside.world["web-0"].address(family), 8080, timeout=1).only.failure
    assert outside.ask(beside.world[NODE].address(family), UNSERVED, timeout=1).only.failure


@BESIDE
@FAMILIES
def test_a_port_that_the_service_does_not_have_is_refused(beside: Scene, family: Family) -> None:
    for client in CLIENTS:
        assert beside.world[client].ask(of_family(family, SHOP), UNSERVED).only.failure is Failure.REFUSED, client


@BESIDE
def test_a_reload_of_the_firewall_costs_no_connection(beside: Scene) -> None:
    """firewalld deletes its table and writes it again, in one transaction."""
    world = beside.world
    loads = [world[client].load(address, 443, interval=0.02, timeout=PATIENT) for client in CLIENTS for address in SHOP]
    text = FIREWALLD.text(world, Family.IPV4)
    with nothing_resent(world, CLIENTS), world["caller"].hold(SHOP[0], 443, count=5) as held:
        for _ in range(RELOADS):
            world.nft(NODE, f"add table inet firewalld\ndelete table inet firewalld\n{text}")
            assert not held.ask().failures
        beside.agent.wait_until(lambda: all(load.report().attempts > 30 for load in loads), "some load")
        reports = [load.stop() for load in loads]

    assert [report.failures for report in reports] == [{}] * len(loads)
    assert all(report.names.keys() <= {"web-0", "web-1"} for report in reports)
