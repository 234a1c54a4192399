"""Others that rewrite sources (flannel, a node that masquerades for everybody) and what ours must do all the same.

A connection whose source another chain has rewritten gets no look from later chains of type nat. Affinity is learned
and the scratch priority cleared nevertheless.
"""

import re
from collections import Counter
from collections.abc import Callable

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import ServiceSpec
from tests.harness.cluster import NODE, Cluster, cluster_ips, of_family
from tests.harness.objects import make_endpoint, make_service, make_slice, service_port

from .scene import Neighbour, Scene, alone, settings

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
SERVICES = {name: cluster_ips(21 + number) for number, name in enumerate(("here", "there", "hosts", "away", "free"))}
CLIENTS = ("caller", "outside", NODE)
MANY = 20
"""So many connections that they all choose alike, of two endpoints, does not happen without affinity (2^-19)."""
MASQUERADING = (
    Neighbour("flannel.iptables", "iptables-nft"),
    Neighbour("flannel.nft"),
    Neighbour("masquerade-all.iptables", "iptables-nft"),
)
BESIDE = pytest.mark.parametrize("beside", settings(*MASQUERADING), indirect=True, ids=str)

LEAVING = """
table inet leaving {
  chain forwarded {
    type filter hook postrouting priority 300
    ct status dnat ct state new meta priority != 0 counter comment "set"
    ct status dnat ct state new meta priority 0 counter comment "clear"
  }
  chain delivered {
    type filter hook input priority 300
    ct status dnat ct state new meta priority != 0 counter comment "set"
    ct status dnat ct state new meta priority 0 counter comment "clear"
  }
}
"""


@pytest.fixture(scope="module")
def prepare() -> Callable[[Cluster], None]:
    return put_sticky_services


def put_sticky_services(cluster: Cluster) -> None:
    """Sticky Services with endpoints in pods here, in pods elsewhere, and on hosts; one that is not sticky."""
    world = cluster.world
    ports = tuple(service_port(80, protocol, name=protocol.name.lower()) for protocol in (Protocol.TCP, Protocol.UDP))
    places = {
        "here": [("web-0", NODE), ("web-1", NODE)],
        "there": [("far-0", "node-b"), ("web-0", NODE)],
        "hosts": [("node-b", "node-b"), (NODE, NODE)],
        "away": [("far-0", "node-b")],
        "free": [("web-0", NODE), ("web-1", NODE)],
    }
    for protocol in (Protocol.TCP, Protocol.UDP):
        world["node-b"].serve(8080, protocol)
        world[NODE].serve(8080, protocol)
    for name, addresses in SERVICES.items():
        spec = ServiceSpec() if name == "free" else ServiceSpec(session_affinity="ClientIP")
        service = make_service(name, *addresses, ports=ports, spec=spec)
        slices = []
        for family in Family:
            endpoints = [make_endpoint(world[member].address(family), node) for member, node in places[name]]
            slices.append(make_slice(service, endpoints, family, target_port=8080))
        cluster.manifests.put(*slices, service)


@BESIDE
@PROTOCOLS
@FAMILIES
@pytest.mark.parametrize("service", ["here", "there", "hosts"])
def test_a_client_stays_with_its_endpoint(beside: Scene, service: str, family: Family, protocol: Protocol) -> None:
    address = of_family(family, SERVICES[service])

    chosen = {client: beside.world[client].ask(address, 80, protocol, count=MANY) for client in CLIENTS}

    assert {client: survey.failures for client, survey in chosen.items()} == {client: Counter() for client in CLIENTS}
    assert {client: len(survey.names) for client, survey in chosen.items()} == dict.fromkeys(CLIENTS, 1)


@BESIDE
@PROTOCOLS
@FAMILIES
def test_without_affinity_both_endpoints_are_chosen(beside: Scene, family: Family, protocol: Protocol) -> None:
    """The control: it is affinity that keeps the clients of the other services with one."""
    survey = beside.world["caller"].ask(of_family(family, SERVICES["free"]), 80, protocol, count=MANY)

    assert survey.names.keys() == {"web-0", "web-1"}


@BESIDE
def test_no_scratch_value_leaves_the_node(beside: Scene) -> None:
    """Queueing disciplines of the operator would sort packets by it."""
    world = beside.world
    world.nft(NODE, LEAVING)
    for addresses in SERVICES.values():
        for address in addresses:
            for client in CLIENTS:
                assert not world[client].ask(address, 80, Protocol.TCP, count=3).failures
                assert not world[client].ask(address, 80, Protocol.UDP, count=3).failures

    counts: Counter[str] = Counter()
    text = world.nft(NODE, "list table inet leaving")
    world.nft(NODE, "delete table inet leaving")
    for packets, comment in re.findall(r'counter packets (\d+) bytes \d+ comment "(\w+)"', text):
        counts[comment] += int(packets)
    assert counts["set"] == 0
    assert counts["clear"] >= len(SERVICES) * 2 * len(CLIENTS) * 3, "half of them, some source ports may be known"


@pytest.mark.parametrize("beside", alone(*MASQUERADING), indirect=True, ids=str)
@FAMILIES
def test_the_neighbour_does_rewrite_sources(beside: Scene, family: Family) -> None:
    """The control: a pod that goes to another host comes from the node, because of the neighbour alone."""
    survey = beside.world["caller"].ask(beside.world["node-b"].address(family), 8080)

    assert survey.peers == {beside.world[NODE].address(family)}
