"""Which ranges change before the rest of a transaction: the kernel would let them change after it."""

from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.proxy.dataplane.image.delta import Delta
from nodeagent.proxy.dataplane.image.image import TableImage, frontend_key, interval_elements, packed_class
from nodeagent.proxy.dataplane.image.range_changes import split_delta
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import GUARDED

V4 = Family.IPV4
GUARD = packed_class(GUARDED)


def allowed(family: Family, frontend: bytes, first: str, last: str) -> bytes:
    return frontend + pack_address(first) + frontend + pack_address(last)


def ranges(*cidrs: str) -> list[bytes]:
    return list(interval_elements(cidrs, V4))


def split(delta: Delta, wanted: TableImage | None = None, *, rewritten: bool = False) -> tuple[Delta, Delta]:
    return split_delta(delta, wanted or {}, rewritten=rewritten)


def test_an_ordinary_change_is_one_transaction() -> None:
    delta = Delta({schema.BACKENDS: {b"key": b"value"}}, {schema.BACKENDS: [b"key"]})
    assert split(delta) == (Delta(), delta)


def test_an_address_at_which_node_ports_answer_no_more_goes_before_a_node_port_comes() -> None:
    going, coming = ranges("192.0.2.1/32"), dict.fromkeys(ranges("192.0.2.9/32"), b"")
    ports = {b"port": b"class"}
    first, rest = split(
        Delta({schema.NODEPORT_ADDRESSES: coming, schema.NODEPORTS: ports}, {schema.NODEPORT_ADDRESSES: going})
    )
    assert first == Delta({}, {schema.NODEPORT_ADDRESSES: going})
    assert rest == Delta({schema.NODEPORT_ADDRESSES: coming, schema.NODEPORTS: ports})


def test_a_range_that_a_wider_one_replaces_leaves_no_gap() -> None:
    delta = Delta(
        {schema.SERVICE_CIDRS: dict.fromkeys(ranges("10.96.0.0/15"), b"")},
        {schema.SERVICE_CIDRS: ranges("10.96.0.0/16")},
    )
    assert split(delta) == (Delta(), delta)


def test_whom_the_former_service_of_a_frontend_allowed_goes_first() -> None:
    for family, address, one, two in (
        (V4, "198.51.100.1", "192.0.2.1", "192.0.2.2"),
        (Family.IPV6, "2001:db8::1", "2001:db8:1::", "2001:db8:2::"),
    ):
        frontend = frontend_key(address, Protocol.TCP, 80)
        other = frontend_key(address, Protocol.TCP, 81)
        going = [allowed(family, frontend, one, one), allowed(family, other, one, one)]
        coming = {allowed(family, frontend, two, two): b""}
        value = GUARD + b"default/new"
        delta = Delta(
            {schema.FRONTENDS: {frontend: value}, schema.ALLOWED_SOURCES: coming}, {schema.ALLOWED_SOURCES: going}
        )

        first, rest = split(delta, {schema.FRONTENDS: {frontend: value}})

        assert first == Delta({}, {schema.ALLOWED_SOURCES: going[:1]})
        assert rest.deletes == {schema.ALLOWED_SOURCES: going[1:]}
        assert rest.puts == delta.puts


def test_a_frontend_that_lets_everybody_in_from_now_on_shuts_nobody_out_before() -> None:
    frontend = frontend_key("198.51.100.1", Protocol.TCP, 80)
    value = packed_class(3) + b"default/web"
    delta = Delta(
        {schema.FRONTENDS: {frontend: value}},
        {schema.ALLOWED_SOURCES: [allowed(V4, frontend, "192.0.2.1", "192.0.2.1")]},
    )
    assert split(delta, {schema.FRONTENDS: {frontend: value}}) == (Delta(), delta)


def test_rules_that_are_rewritten_find_the_ranges_they_are_the_first_to_ask() -> None:
    pods = dict.fromkeys(ranges("10.244.0.0/16"), b"")
    services = ranges("10.96.0.0/16")
    delta = Delta(
        {schema.POD_CIDRS: pods, schema.CLUSTER_IPS: {b"vip!": b""}},
        {schema.SERVICE_CIDRS: services},
    )
    first, rest = split(delta, rewritten=True)
    assert first == Delta({schema.POD_CIDRS: pods})
    assert rest == Delta({schema.CLUSTER_IPS: {b"vip!": b""}}, {schema.SERVICE_CIDRS: services})
