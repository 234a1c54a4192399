"""What libnftables lists, in our form: elements by hand, and what is reported where the two readers differ."""

from typing import Any

import pytest

from nodeagent.diagnosis.tables.listing import differences, read_listing, unchanged
from nodeagent.model.addresses import Protocol, pack_address
from nodeagent.proxy.dataplane.image.image import endpoint_value, frontend_key, node_port_key, packed_class
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import set_specs

SPECS = {spec.name: spec for spec in set_specs(counters=True)}
WEB = frontend_key("10.96.0.10", Protocol.TCP, 80)


def listed(name: str, *elements: Any) -> dict[bytes, bytes]:
    kind = "map" if SPECS[name].is_map else "set"
    return read_listing([{kind: {"table": "nodeagent", "name": name, "elem": list(elements)}}], SPECS)[name]


@pytest.mark.parametrize(
    ("name", "element", "expected"),
    [
        pytest.param(
            schema.FRONTENDS,
            [{"elem": {"val": {"concat": ["10.96.0.10", "tcp", 80]}, "comment": "default/web", "counter": {}}}, "0:3"],
            {WEB: packed_class(3) + b"default/web"},
            id="a value with a name behind it",
        ),
        pytest.param(
            schema.STICKY_IDS,
            [{"concat": ["10.96.0.10", "tcp", 80]}, "6227:e8f1"],
            {WEB: packed_class(0x6227E8F1)},
            id="both halves of a class are hexadecimal",
        ),
        pytest.param(
            schema.BACKENDS,
            [{"concat": ["10.96.0.10", "tcp", 80, 32768]}, {"concat": ["10.244.1.1", 8080]}],
            {WEB + packed_class(0x8000): endpoint_value("10.244.1.1", 8080)},
            id="a slot is a number",
        ),
        pytest.param(
            schema.STICKY_TIMEOUTS,
            [{"concat": ["10.96.0.10", "tcp", 80]}, "none"],
            {WEB: packed_class(0)},
            id="class 0 is called none",
        ),
        pytest.param(
            schema.NODEPORTS_LOCAL_SCOPE,
            [{"concat": [132, 30080]}, "6:1"],
            {node_port_key(Protocol.SCTP, 30080): packed_class(0x60001)},
            id="a protocol without a name",
        ),
        pytest.param(
            schema.DISPATCH,
            ["0:fffe", {"goto": {"target": "refuse"}}],
            {packed_class(0xFFFE): b"refuse"},
            id="a verdict",
        ),
        pytest.param(
            schema.POD_CIDRS,
            {"prefix": {"addr": "10.244.0.0", "len": 16}},
            {pack_address("10.244.0.0") + pack_address("10.244.255.255"): b""},
            id="a prefix is first and last",
        ),
        pytest.param(
            schema.POD_CIDRS,
            {"range": ["10.0.0.1", "10.0.0.9"]},
            {pack_address("10.0.0.1") + pack_address("10.0.0.9"): b""},
            id="a range",
        ),
        pytest.param(
            schema.NODEPORT_ADDRESSES,
            "2001:db8::1",
            {pack_address("2001:db8::1") * 2: b""},
            id="one address in a set of ranges",
        ),
        pytest.param(
            schema.ALLOWED_SOURCES,
            {"concat": ["10.96.0.10", "tcp", 80, {"prefix": {"addr": "203.0.113.0", "len": 24}}]},
            {WEB + pack_address("203.0.113.0") + WEB + pack_address("203.0.113.255"): b""},
            id="a range inside a concatenation",
        ),
    ],
)
def test_elements(name: str, element: Any, expected: dict[bytes, bytes]) -> None:
    assert listed(name, element) == expected


def test_a_set_without_elements_and_one_that_fills_itself_are_empty() -> None:
    assert listed(schema.HAIRPIN) == {}
    learned = [{"elem": {"val": {"concat": ["10.244.1.1", "tcp", "0:1"]}, "timeout": 60, "expires": 59}}, "anything"]
    assert listed(schema.AFFINITY, learned) == {}


def test_others_have_no_say() -> None:
    objects: list[dict[str, Any]] = [
        {"set": {"table": "kube-proxy", "name": schema.HAIRPIN, "elem": [1]}},
        {"chain": {"name": "refuse"}},
    ]
    assert read_listing(objects, SPECS) == {}


def test_an_element_of_another_form_is_an_error() -> None:
    with pytest.raises(ValueError, match="has not 3 fields"):
        listed(schema.MASQUERADE_FRONTENDS, {"concat": ["10.96.0.10", "tcp"]})


def test_differences_are_reported_by_set() -> None:
    own = {"a": {b"1": b"x", b"2": b"x"}, "b": {}, "c": {b"1": b""}}
    other = {"a": {b"1": b"y", b"3": b"x"}, "c": {b"1": b""}, "d": {}}
    assert differences(own, other) == [
        "a: 1 elements only nodeagent finds, 1 only nftables, 1 differ in value",
        "b: only nodeagent finds it",
        "d: only nftables finds it",
    ]
    assert differences(own, own) == []


def test_elements_that_change_between_two_readings_are_not_compared() -> None:
    before = {"backends": {b"stays": b"1", b"moves": b"1", b"goes": b"1", b"wrong": b"1"}}
    after = {"backends": {b"stays": b"1", b"moves": b"2", b"comes": b"1", b"wrong": b"1"}}
    other = {"backends": {b"stays": b"1", b"moves": b"2", b"goes": b"1", b"comes": b"1", b"wrong": b"2", b"more": b"1"}}

    own, reported = unchanged(before, other, after)

    assert own == {"backends": {b"stays": b"1", b"wrong": b"1"}}
    assert differences(own, reported) == [
        "backends: 0 elements only nodeagent finds, 1 only nftables, 1 differ in value",
    ]
