"""Each kind of frontend becomes exactly these elements; those of the first dispatch carry the service port's name."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, Scope, ServiceState, Unserved
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.image.affinity import affinity_id
from nodeagent.proxy.dataplane.image.blocks import cluster_ip_block
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import (
    TableImage,
    class_of,
    empty_image,
    endpoint_value,
    frontend_key,
    node_port_key,
    packed_class,
)
from nodeagent.proxy.dataplane.image.render import assign_slots, slot_keys, too_many_backends
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import BY_SOURCE, DISCARD, GUARDED, MAX_BACKENDS, REFUSE, PickClass

TCP = Protocol.TCP
WEB = ObjectKey("default", "web")
HTTP = ServicePortName(WEB, "http", TCP)
ONE, TWO = Backend("10.244.1.1", 8080, local=True), Backend("10.244.2.2", 8080)
KEY = frontend_key("10.96.0.10", TCP, 80)
PORT_KEY = node_port_key(TCP, 30080)
NOTHING = empty_image(schema.DATA_SETS)
NAME = b"default/web:http"
PICK_2 = packed_class(PickClass(2).number) + NAME
IN_SLOTS = {
    KEY + packed_class(0): endpoint_value("10.244.1.1", 8080),
    KEY + packed_class(1): endpoint_value("10.244.2.2", 8080),
}
SELF = {pack_address("10.244.1.1") * 2: b""}
BOTH = Route((ONE, TWO))


def frontend(
    kind: FrontendKind = FrontendKind.EXTERNAL_IP,
    address: str | None = "10.96.0.10",
    route: Route = BOTH,
    short_circuit: Route | None = None,
    *,
    masquerade: bool = False,
    affinity: int | None = None,
    allowed: tuple[str, ...] | None = None,
) -> Frontend:
    port = 30080 if address is None else 80
    return Frontend(kind, Family.IPV4, address, TCP, port, HTTP, route, short_circuit, masquerade, affinity, allowed)


def rendered(*frontends: Frontend, cluster_ips: tuple[str, ...] = (), programmed: TableImage = NOTHING) -> TableImage:
    state = ServiceState(WEB, cluster_ips=cluster_ips, frontends=frontends)
    desired = DesiredImage(Family.IPV4)
    desired.update({WEB: state}, programmed)
    return {name: elements for name, elements in desired.image.items() if elements}


LOCAL_ID = packed_class(affinity_id(HTTP, Scope.LOCAL))
CLUSTER_ID = packed_class(affinity_id(HTTP, Scope.CLUSTER))
CLUSTER_SLOT_0 = KEY + packed_class(0x8000)


@pytest.mark.parametrize(
    ("given_frontend", "expected"),
    [
        pytest.param(
            frontend(), {schema.FRONTENDS: {KEY: PICK_2}, schema.BACKENDS: IN_SLOTS, schema.HAIRPIN: SELF}, id="address"
        ),
        pytest.param(
            frontend(masquerade=True),
            {
                schema.FRONTENDS: {KEY: PICK_2},
                schema.BACKENDS: IN_SLOTS,
                schema.HAIRPIN: SELF,
                schema.MASQUERADE_FRONTENDS: {KEY: b""},
            },
            id="address with masquerade",
        ),
        pytest.param(
            frontend(FrontendKind.CLUSTER_IP, masquerade=True, route=Route((TWO,))),
            {
                schema.FRONTENDS: {KEY: packed_class(1) + NAME},
                schema.BACKENDS: {KEY + packed_class(0): endpoint_value("10.244.2.2", 8080)},
            },
            id="a ClusterIP's masquerade is the program's",
        ),
        pytest.param(
            frontend(FrontendKind.NODE_PORT, None, masquerade=True, route=Route((TWO,))),
            {
                schema.NODEPORTS: {PORT_KEY: packed_class(PickClass(1, node_port=True).number) + NAME},
                schema.NODEPORT_BACKENDS: {PORT_KEY + packed_class(0): endpoint_value("10.244.2.2", 8080)},
                schema.MASQUERADE_NODEPORTS: {PORT_KEY + endpoint_value("10.244.2.2", 8080): b""},
            },
            id="node port",
        ),
        pytest.param(
            frontend(route=Route((), otherwise=Unserved.REFUSE)),
            {schema.FRONTENDS: {KEY: packed_class(REFUSE) + NAME}},
            id="no endpoint: refused",
        ),
        pytest.param(
            frontend(route=Route((), Scope.LOCAL, Unserved.DROP), short_circuit=Route((TWO,))),
            {
                schema.FRONTENDS: {KEY: packed_class(BY_SOURCE) + NAME},
                schema.FRONTENDS_LOCAL_SCOPE: {KEY: packed_class(DISCARD)},
                schema.FRONTENDS_CLUSTER_SCOPE: {KEY: packed_class(PickClass(1, cluster_scope=True).number)},
                schema.BACKENDS: {CLUSTER_SLOT_0: endpoint_value("10.244.2.2", 8080)},
            },
            id="no local endpoint: dropped, but pods and the node get any",
        ),
        pytest.param(
            frontend(route=Route((TWO,), Scope.LOCAL), short_circuit=Route((TWO,)), affinity=60),
            {
                schema.FRONTENDS: {KEY: packed_class(BY_SOURCE) + NAME},
                schema.FRONTENDS_LOCAL_SCOPE: {KEY: packed_class(PickClass(1, sticky=True).number)},
                schema.FRONTENDS_CLUSTER_SCOPE: {
                    KEY: packed_class(PickClass(1, cluster_scope=True, sticky=True).number)
                },
                schema.BACKENDS: {
                    KEY + packed_class(0): endpoint_value("10.244.2.2", 8080),
                    KEY + packed_class(0x8000): endpoint_value("10.244.2.2", 8080),
                },
                schema.STICKY_TIMEOUTS: {KEY: packed_class(60)},
                schema.STICKY_IDS: {KEY: LOCAL_ID},
                schema.STICKY_IDS_CLUSTER_SCOPE: {KEY: CLUSTER_ID},
            },
            id="affinity, an id for each list",
        ),
        pytest.param(
            frontend(FrontendKind.NODE_PORT, None, route=Route((TWO,)), affinity=60),
            {
                schema.NODEPORTS: {PORT_KEY: packed_class(PickClass(1, node_port=True, sticky=True).number) + NAME},
                schema.NODEPORT_BACKENDS: {PORT_KEY + packed_class(0): endpoint_value("10.244.2.2", 8080)},
                schema.NODEPORT_STICKY_TIMEOUTS: {PORT_KEY: packed_class(60)},
                schema.NODEPORT_STICKY_IDS: {PORT_KEY: CLUSTER_ID},
            },
            id="affinity of a node port shares the id",
        ),
        pytest.param(
            frontend(route=Route(()), allowed=("203.0.113.0/24", "192.0.2.1/32")),
            {
                schema.FRONTENDS: {KEY: packed_class(GUARDED) + NAME},
                schema.GUARDED_FRONTENDS: {KEY: packed_class(REFUSE)},
                schema.ALLOWED_SOURCES: {
                    KEY + pack_address("203.0.113.0") + KEY + pack_address("203.0.113.255"): b"",
                    KEY + pack_address("192.0.2.1") + KEY + pack_address("192.0.2.1"): b"",
                },
            },
            id="source ranges",
        ),
        pytest.param(
            frontend(route=Route(()), allowed=()),
            {
                schema.FRONTENDS: {KEY: packed_class(GUARDED) + NAME},
                schema.GUARDED_FRONTENDS: {KEY: packed_class(REFUSE)},
            },
            id="nobody may connect",
        ),
    ],
)
def test_elements_of_a_frontend(given_frontend: Frontend, expected: TableImage) -> None:
    assert rendered(given_frontend) == expected


def test_cluster_ips_are_known_even_without_a_port_and_per_family() -> None:
    image = rendered(cluster_ips=("10.96.0.10", "fd00:10:96::10"))
    assert image == {
        schema.CLUSTER_IPS: {pack_address("10.96.0.10"): b""},
        schema.CLUSTER_IP_BLOCKS: {pack_address("10.96.0.0"): b""},
        schema.CLUSTER_IP_ONLY_BLOCKS: {pack_address("10.96.0.0"): b""},
    }


@pytest.mark.parametrize(
    ("address", "block"),
    [
        pytest.param("10.96.255.10", "10.96.0.0", id="IPv4: /16"),
        pytest.param("fd00:10:96::ffff:10", "fd00:10:96::ffff:0", id="IPv6: /112"),
    ],
)
def test_the_block_of_a_cluster_ip(address: str, block: str) -> None:
    assert cluster_ip_block(pack_address(address)) == pack_address(block)


def test_more_endpoints_than_slots_are_cut_and_reported() -> None:
    many = tuple(Backend(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", 80) for n in range(MAX_BACKENDS + 2))
    big = frontend(route=Route(many))
    image = rendered(big)
    assert class_of(image[schema.FRONTENDS][KEY]) == MAX_BACKENDS
    assert len(image[schema.BACKENDS]) == MAX_BACKENDS
    (problem,) = too_many_backends(ServiceState(WEB, frontends=(big,)))
    assert (problem.subject, problem.reason) == ("Service default/web", "TooManyEndpoints")
    assert too_many_backends(ServiceState(WEB, frontends=(frontend(),))) == ()


def test_an_endpoint_that_stays_keeps_its_slot() -> None:
    programmed = {**NOTHING, schema.FRONTENDS: {KEY: PICK_2}, schema.BACKENDS: dict(IN_SLOTS)}
    three = Backend("10.244.0.3", 8080)
    image = rendered(frontend(route=Route((three, TWO, ONE))), programmed=programmed)
    assert image[schema.BACKENDS] == {**IN_SLOTS, KEY + packed_class(2): endpoint_value("10.244.0.3", 8080)}


@pytest.mark.parametrize(
    ("cluster_scope", "sticky", "first"),
    [(False, False, 0), (True, False, 0x8000), (False, True, 0), (True, True, 0x8000)],
)
@pytest.mark.parametrize("count", [1, 256, 257, MAX_BACKENDS])
def test_the_slots_of_the_two_lists_are_apart_and_affinity_changes_none(
    cluster_scope: bool, sticky: bool, first: int, count: int
) -> None:
    slots = slot_keys(PickClass(count, cluster_scope, sticky=sticky))
    assert [class_of(slot) for slot in slots] == list(range(first, first + count))


def test_a_list_behind_its_source_ranges_and_its_scope_keeps_its_slots() -> None:
    """Between the frontend and its endpoints there are then three classes."""
    both = frontend(route=Route((ONE, TWO), Scope.LOCAL), short_circuit=Route((TWO,)), allowed=("203.0.113.0/24",))
    programmed = {**NOTHING, **rendered(both)}
    three = Backend("10.244.0.3", 8080)
    grown = frontend(
        route=Route((three, TWO, ONE), Scope.LOCAL), short_circuit=Route((TWO,)), allowed=("203.0.113.0/24",)
    )
    image = rendered(grown, programmed=programmed)
    assert image[schema.BACKENDS].items() >= programmed[schema.BACKENDS].items()
    assert image[schema.GUARDED_FRONTENDS] == {KEY: packed_class(BY_SOURCE)}
    assert image[schema.FRONTENDS_LOCAL_SCOPE] == {KEY: packed_class(3)}


endpoint_lists = st.lists(st.binary(min_size=1, max_size=1), unique=True, max_size=12)
few = st.sampled_from([b"a", b"b", b"c"])
found_lists = endpoint_lists | st.lists(few, max_size=4)
"""Endpoints by slot as another process may have left them: one can be in several slots."""


@given(before=found_lists, wanted=endpoint_lists | st.lists(few, unique=True))
@example(before=[b"a", b"a"], wanted=[b"a", b"b"])
def test_assigned_slots_are_the_wanted_endpoints_and_as_few_move_as_can(
    before: list[bytes], wanted: list[bytes]
) -> None:
    after = assign_slots(before, wanted)
    assert sorted(after) == sorted(wanted)
    could_stay = [endpoint for endpoint in before[: len(wanted)] if endpoint in wanted]
    assert all(after[before.index(endpoint)] == endpoint for endpoint in could_stay)


@given(before=endpoint_lists, wanted=endpoint_lists, data=st.data())
def test_assigned_slots_do_not_depend_on_the_order_of_the_wanted(
    before: list[bytes], wanted: list[bytes], data: st.DataObject
) -> None:
    assert assign_slots(before, wanted) == assign_slots(before, data.draw(st.permutations(wanted)))


def test_affinity_ids_are_the_same_in_every_run_and_differ_by_port_protocol_and_list() -> None:
    names = [
        ServicePortName(key, port, protocol)
        for key in (WEB, ObjectKey("default", "web2"))
        for port in ("", "http")
        for protocol in Protocol
    ]
    ids = {affinity_id(name, scope) for name in names for scope in Scope}
    assert len(ids) == len(names) * 2
    assert all(0 < number < 0xFFFFFFFF for number in ids)
    assert all(number & 0x10000 for number in ids)
    assert affinity_id(HTTP, Scope.CLUSTER) == 0x74B16332
