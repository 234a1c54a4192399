"""External addresses and load-balancer addresses lead to the endpoints; which Services may have an address, and which may not."""

import itertools
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.model.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceSpec,
    ServiceStatus,
)
from tests.harness.cluster import NODE, WITH_POD_CIDRS, cluster_ips
from tests.harness.objects import make_service, service_port
from tests.harness.serving_node import ServingNode

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
CLIENTS = ("outside", "caller", "far-0", NODE)

PORTS = (service_port(80, name="http"), service_port(80, Protocol.UDP, name="dns"))
VIPS = ("198.51.100.1", "2001:db8:100::1")
PROXIED = ("198.51.100.2", "2001:db8:100::2")
EXTERNAL = ("198.51.100.3", "2001:db8:100::3")
OF_NODE = ("192.168.0.2", "2001:db8::2")
CONTESTED = ("198.51.100.9", "2001:db8:100::9")


@pytest.fixture(scope="module")
def exposed(served: ServingNode) -> ServingNode:
    """A service with every kind of address: of a load balancer (one that it keeps to itself), external, the node's."""
    served.run_agent(*WITH_POD_CIDRS)
    spec = ServiceSpec(external_ips=(*EXTERNAL, *OF_NODE))
    service = make_service("web", *cluster_ips(1), ports=PORTS, load_balancer_ips=VIPS, spec=spec)
    ingress = [LoadBalancerIngress(vip, ip_mode="VIP") for vip in VIPS]
    ingress += [LoadBalancerIngress(vip, ip_mode="Proxy") for vip in PROXIED]
    service = replace(service, status=ServiceStatus(LoadBalancerStatus(tuple(ingress))))
    served.expose(service, "web-0", "far-0")
    return served


def of(family: Family, addresses: Sequence[str]) -> str:
    return next(address for address in addresses if family_of(address) is family)


@PROTOCOLS
@FAMILIES
@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(VIPS, id="load balancer"),
        pytest.param(EXTERNAL, id="external"),
        pytest.param(OF_NODE, id="external, an address of the node"),
    ],
)
def test_everybody_reaches_all_endpoints_with_the_source_rewritten(
    exposed: ServingNode, addresses: Sequence[str], family: Family, protocol: Protocol
) -> None:
    for client in CLIENTS:
        survey = exposed.world[client].ask(of(family, addresses), 80, protocol, count=40)

        assert set(survey.names) == {"web-0", "far-0"}, client
        assert not survey.failures
        assert survey.peers == {of(family, OF_NODE), of(family, ("10.244.1.1", "fd00:244:1::1"))}, client


@PROTOCOLS
@FAMILIES
def test_an_address_the_load_balancer_keeps_is_not_captured(
    exposed: ServingNode, family: Family, protocol: Protocol
) -> None:
    for client in ("outside", "caller", NODE):
        failure = exposed.world[client].ask(of(family, PROXIED), 80, protocol, timeout=0.1).only.failure
        assert failure in (Failure.UNREACHABLE, Failure.TIMEOUT), client


@PROTOCOLS
@FAMILIES
def test_other_ports_of_a_node_address_stay_the_nodes(exposed: ServingNode, family: Family, protocol: Protocol) -> None:
    address = of(family, OF_NODE)
    with exposed.world[NODE].serve(81, protocol, addresses=(address,)):
        for client in CLIENTS:
            assert exposed.world[client].ask(address, 81, protocol).names == {NODE: 1}, client


def claimant(name: str, number: int, created: str) -> Service:
    service = make_service(name, *cluster_ips(number), ports=PORTS, spec=ServiceSpec(external_ips=CONTESTED))
    return replace(service, metadata=replace(service.metadata, creation_timestamp=created))


def test_the_older_of_two_services_is_served_and_the_other_when_it_is_gone(exposed: ServingNode) -> None:
    older = claimant("older", 20, "2026-01-01T00:00:00Z")
    younger = claimant("a-younger", 21, "2026-01-02T00:00:00Z")
    outside = exposed.world["outside"]

    def is_served_by(name: str, addresses: Sequence[str]) -> None:
        for address, protocol in itertools.product(addresses, (Protocol.TCP, Protocol.UDP)):
            survey = outside.ask(address, 80, protocol, count=5)
            assert survey.names == {name: 5}, (address, protocol.name, tuple(survey))

    exposed.expose(younger, "web-2")
    is_served_by("web-2", CONTESTED)

    seen = len(exposed.agent.lines)
    exposed.expose(older, "web-1")
    traced = exposed.agent.wait_for_line("problem: .*a-younger.*AddressConflict", after=seen)
    assert "older" in traced.replace("a-younger", "")
    is_served_by("web-1", CONTESTED)
    is_served_by("web-2", cluster_ips(21))  # The loser keeps its other addresses.

    seen = len(exposed.agent.lines)
    exposed.remove(older, *exposed.slices(older))
    exposed.agent.wait_for_line("solved: .*a-younger.*AddressConflict", after=seen)
    is_served_by("web-2", CONTESTED)


def test_external_ips_are_left_alone_when_switched_off(exposed: ServingNode) -> None:
    exposed.run_agent(*WITH_POD_CIDRS, "--external-ips", "false")
    for client in ("outside", "caller", NODE):
        for address in EXTERNAL:
            failure = exposed.world[client].ask(address, 80, timeout=0.1).only.failure
            assert failure in (Failure.UNREACHABLE, Failure.TIMEOUT), client
        for address in (*VIPS, *cluster_ips(1)):
            assert not exposed.world[client].ask(address, 80).failures, client
