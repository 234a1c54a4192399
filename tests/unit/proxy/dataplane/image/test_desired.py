"""The wanted image is the sum of the services; what left it is known by key."""

import pytest
from msgspec.structs import replace

from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.packed_backends import pack_backends
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import (
    TableImage,
    classes_in,
    empty_image,
    frontend_key,
    packed_class,
    timeouts_in,
)
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import PickClass

WEB, SHOP = ObjectKey("default", "web"), ObjectKey("default", "shop")
VIP = "10.96.0.10"
KEY = frontend_key(VIP, Protocol.TCP, 80)
POD = Backend("10.244.1.1", 8080, local=True)
POD_TO_ITSELF = pack_address(POD.address) * 2
NOTHING: TableImage = empty_image(schema.DATA_SETS)


def state(service: ObjectKey, address: str = VIP, *backends: Backend) -> ServiceState:
    name = ServicePortName(service, "", Protocol.TCP)
    only = Frontend(FrontendKind.CLUSTER_IP, Family.IPV4, address, Protocol.TCP, 80, name, Route(backends or (POD,)))
    return ServiceState(service, cluster_ips=(address,), frontends=(only,))


@pytest.fixture
def desired() -> DesiredImage:
    return DesiredImage(Family.IPV4)


def held(desired: DesiredImage) -> TableImage:
    return {name: elements for name, elements in desired.image.items() if elements}


def test_every_set_is_there_from_the_beginning(desired: DesiredImage) -> None:
    assert set(desired.image) == set(schema.DATA_SETS)
    assert held(desired) == {}
    assert desired.take_dirty() == {}


def test_a_service_that_goes_takes_its_elements_along(desired: DesiredImage) -> None:
    desired.update({WEB: state(WEB)}, NOTHING)
    added = {name: set(elements) for name, elements in held(desired).items()}
    assert desired.take_dirty() == added

    desired.update({WEB: None}, NOTHING)
    assert held(desired) == {}
    assert {name: keys for name, keys in desired.take_dirty().items() if keys} == added


def test_removing_an_unknown_service_does_nothing(desired: DesiredImage) -> None:
    desired.update({WEB: None}, NOTHING)
    assert held(desired) == {}


def test_an_element_that_two_services_have_stays_until_both_are_gone(desired: DesiredImage) -> None:
    desired.update({WEB: state(WEB), SHOP: state(SHOP, "10.96.0.11")}, NOTHING)
    desired.take_dirty()

    desired.update({WEB: None}, NOTHING)
    assert POD_TO_ITSELF in desired.image[schema.HAIRPIN]
    assert POD_TO_ITSELF not in desired.take_dirty().get(schema.HAIRPIN, set())

    desired.update({SHOP: None}, NOTHING)
    assert POD_TO_ITSELF not in desired.image[schema.HAIRPIN]
    assert POD_TO_ITSELF in desired.take_dirty()[schema.HAIRPIN]


@pytest.mark.parametrize("order", [(WEB, SHOP), (SHOP, WEB)], ids=["loser first", "winner first"])
def test_a_frontend_that_changes_hands_stays_whichever_is_named_first(
    desired: DesiredImage, order: tuple[ObjectKey, ObjectKey]
) -> None:
    desired.update({WEB: state(WEB)}, NOTHING)
    states = {WEB: ServiceState(WEB), SHOP: state(SHOP)}
    desired.update({key: states[key] for key in order}, NOTHING)

    assert desired.image[schema.FRONTENDS][KEY].endswith(b"default/shop")
    assert desired.owner_of(schema.FRONTENDS, KEY) == SHOP


def test_elements_know_their_service_unless_they_are_the_nodes_own(desired: DesiredImage) -> None:
    desired.update({WEB: state(WEB)}, NOTHING)
    desired.set_node(NodeState(service_cidrs=("10.96.0.0/16",)))
    (cidr,) = desired.image[schema.SERVICE_CIDRS]

    assert desired.owner_of(schema.BACKENDS, KEY + packed_class(0)) == WEB
    assert desired.owner_of(schema.SERVICE_CIDRS, cidr) is None


def test_the_nodes_sets_are_replaced_and_only_what_differs_is_dirty(desired: DesiredImage) -> None:
    desired.set_node(NodeState(("10.96.0.0/16", "fd00::/112"), ("10.244.0.0/16",), ("0.0.0.0/0",)))
    assert desired.image[schema.SERVICE_CIDRS] == {pack_address("10.96.0.0") + pack_address("10.96.255.255"): b""}
    assert desired.image[schema.NODEPORT_ADDRESSES] == {b"\0" * 4 + b"\xff" * 4: b""}
    desired.take_dirty()

    desired.set_node(NodeState(("10.96.0.0/16",), ("10.245.0.0/16",), ("0.0.0.0/0",)))
    old, new = ((pack_address(f"10.{n}.0.0") + pack_address(f"10.{n}.255.255")) for n in (244, 245))
    assert desired.take_dirty() == {schema.POD_CIDRS: {old, new}}


def test_the_other_family_is_not_ours() -> None:
    ipv6 = DesiredImage(Family.IPV6)
    ipv6.update({WEB: state(WEB)}, NOTHING)
    assert held(ipv6) == {}


def test_classes_and_timeouts_in_use() -> None:
    numbers = {b"a": packed_class(3), b"b": packed_class(3) + b"name", b"c": packed_class(0xFFFE)}
    image = {
        schema.FRONTENDS: numbers,
        schema.NODEPORTS_CLUSTER_SCOPE: {b"d": packed_class(PickClass(2, True, True, True).number)},
        schema.STICKY_TIMEOUTS: {b"a": packed_class(60), b"b": packed_class(60)},
        schema.NODEPORT_STICKY_TIMEOUTS: {b"d": packed_class(10800)},
    }
    assert classes_in(image) == {PickClass(3), PickClass(2, True, True, True)}
    assert timeouts_in(image) == {60, 10800}
    assert (classes_in({}), timeouts_in({})) == (set(), set())


@pytest.mark.parametrize("sticky", [False, True])
def test_a_service_that_cannot_be_rendered_is_a_problem_and_the_others_are_there(
    desired: DesiredImage, sticky: bool
) -> None:
    """A port that no packet has: the translation lets none through, and if it did, it would be one service's trouble."""
    broken = state(SHOP, "10.96.0.11", Backend("10.244.1.2", 70000))
    if sticky:
        only = replace(broken.frontends[0], affinity_seconds=60)
        broken = replace(broken, frontends=(only,))
    desired.update({SHOP: broken, WEB: state(WEB)}, NOTHING)
    assert KEY in desired.image[schema.FRONTENDS]
    (problem,) = desired.unrendered.values()
    assert (problem.subject, problem.reason) == ("Service default/shop", "RenderingFailed")
    desired.update({SHOP: state(SHOP, "10.96.0.11")}, NOTHING)
    assert not desired.unrendered
    assert len(desired.image[schema.FRONTENDS]) == 2


def test_new_endpoints_that_cannot_be_rendered_are_a_problem_of_their_service_only(desired: DesiredImage) -> None:
    def with_endpoints(service: ObjectKey, address: str, port: int, count: int) -> ServiceState:
        backends = pack_backends([Backend(f"10.244.1.{number}", port) for number in range(count)])
        bare = state(service, address)
        return replace(bare, frontends=(replace(bare.frontends[0], route=Route(backends)),))

    desired.update({SHOP: with_endpoints(SHOP, "10.96.0.11", 80, 2), WEB: with_endpoints(WEB, VIP, 80, 2)}, NOTHING)
    desired.update({SHOP: with_endpoints(SHOP, "10.96.0.11", 70000, 3), WEB: with_endpoints(WEB, VIP, 80, 3)}, NOTHING)
    (problem,) = desired.unrendered.values()
    assert (problem.subject, problem.reason) == ("Service default/shop", "RenderingFailed")
    assert desired.image[schema.FRONTENDS].keys() == {KEY}
    assert desired.image[schema.BACKENDS].keys() == {KEY + packed_class(slot) for slot in range(3)}
