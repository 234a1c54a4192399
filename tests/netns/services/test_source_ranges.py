"""Source ranges guard the load-balancer addresses of a service, and nothing else of it."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.model.objects import Service, ServiceSpec
from tests.harness.cluster import NODE, WITH_POD_CIDRS, cluster_ips
from tests.harness.links import Links
from tests.harness.lost_packets import PATIENT
from tests.harness.objects import make_service, service_port
from tests.harness.serving_node import ServingNode

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)

CLIENTS = ("outside", "caller", "far-0", NODE)
NODE_ADDRESSES = ("192.168.0.2", "2001:db8::2")
VIPS = ("198.51.100.1", "2001:db8:100::1")
EXTERNAL = ("198.51.100.2", "2001:db8:100::2")
NODE_PORT = 30080
PORTS = (
    service_port(80, name="http", node_port=NODE_PORT),
    service_port(80, Protocol.UDP, name="dns", node_port=NODE_PORT),
)

OUTSIDE = ("203.0.113.0/24", "2001:db8:ffff::/64")
PODS_HERE = ("10.244.1.0/24", "fd00:244:1::/48")
ALL_PODS = ("10.244.0.0/16", "fd00:244::/32")
THIS_NODE = ("192.168.0.2/32", "2001:db8::2/128")

Ranges = tuple[str, ...]


def guarded(ranges: Ranges) -> Service:
    spec = ServiceSpec(load_balancer_source_ranges=ranges, external_ips=EXTERNAL)
    return make_service("web", *cluster_ips(1), ports=PORTS, load_balancer_ips=VIPS, spec=spec)


@pytest.fixture(scope="module")
def with_ranges(served: ServingNode) -> Callable[[Ranges], ServingNode]:
    """The node with the service restricted to these ranges; written only when they change."""
    served.run_agent(*WITH_POD_CIDRS)
    present: list[Ranges] = []

    def apply(ranges: Ranges) -> ServingNode:
        if present != [ranges]:
            served.expose(guarded(ranges), "web-0", "far-0")
            present[:] = [ranges]
        return served

    return apply


@pytest.fixture
def vips_on_the_node(served: ServingNode) -> Iterator[None]:
    """The node holds the load-balancer addresses, as some load balancers want it, and sends from them."""
    links = Links(served.world, NODE)
    links.add_addresses("lo", *VIPS)
    served.settle()  # the agent has seen them
    yield
    links.remove_addresses("lo", *VIPS)


def of(family: Family, addresses: Sequence[str]) -> str:
    return next(address for address in addresses if family_of(address) is family)


def blocked(client: str, protocol: Protocol) -> Failure:
    """What a dropped packet looks like: the kernel tells a process of the node that sends a datagram."""
    return Failure.DENIED if client == NODE and protocol is Protocol.UDP else Failure.TIMEOUT


@PROTOCOLS
@FAMILIES
@pytest.mark.parametrize(
    ("ranges", "admitted"),
    [
        pytest.param(OUTSIDE, {"outside"}, id="a network outside"),
        pytest.param(PODS_HERE, {"caller"}, id="the pods of this node"),
        pytest.param(ALL_PODS, {"caller", "far-0"}, id="all pods"),
        pytest.param(THIS_NODE, {NODE}, id="this node"),
        pytest.param((*OUTSIDE, *ALL_PODS), {"outside", "caller", "far-0"}, id="two networks"),
        pytest.param(("0.0.0.0/0", "::/0"), set(CLIENTS), id="everybody"),
        pytest.param(("nonsense", "10.244.0.0/33"), set(CLIENTS), id="none that is valid"),
    ],
)
def test_whom_a_load_balancer_address_admits(
    with_ranges: Callable[[Ranges], ServingNode],
    ranges: Ranges,
    admitted: set[str],
    family: Family,
    protocol: Protocol,
) -> None:
    world = with_ranges(ranges).world
    for client in CLIENTS:
        timeout = PATIENT if client in admitted else 0.1
        answer = world[client].ask(of(family, VIPS), 80, protocol, timeout=timeout).only

        assert answer.failure == (None if client in admitted else blocked(client, protocol)), client


@FAMILIES
def test_ranges_of_one_family_leave_the_other_open_and_say_so(
    with_ranges: Callable[[Ranges], ServingNode], family: Family
) -> None:
    served = with_ranges(())
    seen = len(served.agent.lines)
    with_ranges((of(family, PODS_HERE),))

    served.agent.wait_for_line("problem: .*default/web.*SourceRangesIneffective", after=seen)
    for each in Family:
        traced, timeout = (Failure.TIMEOUT, 0.3) if each is family else (None, PATIENT)
        assert served.world["outside"].ask(of(each, VIPS), 80, timeout=timeout).only.failure == traced


@PROTOCOLS
@FAMILIES
def test_other_addresses_of_the_service_are_not_guarded(
    with_ranges: Callable[[Ranges], ServingNode], family: Family, protocol: Protocol
) -> None:
    world = with_ranges(THIS_NODE).world
    places = [(of(family, NODE_ADDRESSES), NODE_PORT), (of(family, EXTERNAL), 80), (of(family, cluster_ips(1)), 80)]
    for client in ("outside", "caller", NODE):
        for where in places:
            assert not world[client].ask(*where, protocol).failures, (client, where)


@PROTOCOLS
@FAMILIES
@pytest.mark.parametrize(
    ("ranges", "admitted"), [pytest.param(THIS_NODE, True, id="admitted"), pytest.param(OUTSIDE, False, id="not")]
)
@pytest.mark.usefixtures("vips_on_the_node")
def test_a_node_that_holds_the_address_and_sends_from_it_is_judged_by_its_own(
    with_ranges: Callable[[Ranges], ServingNode], ranges: Ranges, admitted: bool, family: Family, protocol: Protocol
) -> None:
    world = with_ranges(ranges).world
    vip = of(family, VIPS)
    answer = world[NODE].ask(vip, 80, protocol, timeout=PATIENT if admitted else 0.1, source_address=vip).only

    assert answer.failure == (None if admitted else blocked(NODE, protocol))


@PROTOCOLS
@FAMILIES
def test_without_endpoints_allowed_clients_are_refused_and_others_dropped(
    with_ranges: Callable[[Ranges], ServingNode], family: Family, protocol: Protocol
) -> None:
    served = with_ranges(())
    guard = guarded(PODS_HERE)
    served.expose(guard)
    try:
        asked = {
            c: served.world[c].ask(of(family, VIPS), 80, protocol, timeout=timeout).only
            for c, timeout in (("caller", PATIENT), ("outside", 0.3))
        }
        assert (asked["caller"].failure, asked["outside"].failure) == (Failure.REFUSED, Failure.TIMEOUT)
    finally:
        served.expose(guarded(()), "web-0", "far-0")
