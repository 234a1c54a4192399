"""Our routes in the kernel's messages: the destination counts for itself, and all other bytes as they do in a message that is read whole."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import pack_address
from nodeagent.wire.netlink.framing import attribute, packed_message
from nodeagent.wire.netlink.local_routes import (
    LocalRoute,
    local_routes_in,
    read_local_route,
    read_route_over_lo,
    routes_over_lo_in,
)
from nodeagent.wire.netlink.rtnetlink import LOOPBACK_INDEX, PROTOCOL_OVER_LO
from nodeagent.wire.netlink.uapi import rtnetlink as uapi

INDEX = 7


def route(
    destination: str,
    source: str = "",
    *,
    prefix: int | None = None,
    index: int = INDEX,
    protocol: int = uapi.RTPROT_STATIC,
    kind: int = uapi.RTN_LOCAL,
    table: int = uapi.RT_TABLE_LOCAL,
    flags: int = 0,
    table_first: bool = True,
) -> memoryview:
    """A message of the kernel, behind its header."""
    packed = pack_address(destination)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    length = len(packed) * 8 if prefix is None else prefix
    head = struct.pack("=BBBBBBBBI", family, length, 0, 0, table & 0xFF, protocol, 254, kind, flags)
    parts = [attribute(uapi.RTA_TABLE, struct.pack("=I", table)), attribute(uapi.RTA_DST, packed)]
    if source:
        parts.append(attribute(uapi.RTA_PREFSRC, pack_address(source)))
    parts.append(attribute(uapi.RTA_OIF, struct.pack("=I", index)))
    return memoryview(head + b"".join(parts if table_first else parts[::-1]))


@pytest.mark.parametrize("table_first", [True, False], ids=["as the kernel writes it", "in another order"])
@pytest.mark.parametrize(
    ("message", "found"),
    [
        pytest.param({"destination": "10.96.0.1"}, LocalRoute("10.96.0.1"), id="a ClusterIP"),
        pytest.param(
            {"destination": "10.96.0.1", "source": "192.0.2.1"},
            LocalRoute("10.96.0.1", "192.0.2.1"),
            id="with a source",
        ),
        pytest.param({"destination": "fd00::a"}, LocalRoute("fd00::a"), id="of IPv6"),
        pytest.param(
            {"destination": "fd00::", "prefix": 112, "kind": uapi.RTN_UNICAST},
            LocalRoute("fd00::/112"),
            id="to a range",
        ),
        pytest.param({"destination": "10.96.0.0", "prefix": 16}, None, id="to a local range"),
        pytest.param({"destination": "10.96.0.0", "prefix": 16, "kind": uapi.RTN_UNICAST}, None, id="to an IPv4 range"),
        pytest.param({"destination": "10.96.0.1", "index": INDEX + 1}, None, id="over another interface"),
        pytest.param({"destination": "10.96.0.1", "protocol": 2}, None, id="by the kernel itself"),
        pytest.param({"destination": "10.96.0.1", "table": 254}, None, id="in another table"),
        pytest.param({"destination": "10.96.0.1", "flags": uapi.RTM_F_CLONED}, None, id="a copy"),
    ],
)
def test_a_route_is_ours_or_not(message: dict[str, object], found: LocalRoute | None, *, table_first: bool) -> None:
    assert read_local_route(route(**message, table_first=table_first), INDEX) == found  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.ip_addresses(), st.sampled_from(["", "192.0.2.1", "192.0.2.2"])), min_size=2, max_size=8))
def test_routes_that_differ_a_little_are_kept_apart(wanted: list[tuple[object, str]]) -> None:
    for address, source in wanted:
        text = str(address)
        own = source if "." in text and ":" not in text else ""
        assert read_local_route(route(text, own), INDEX) == LocalRoute(socket_text(text), own)
        assert read_local_route(route(text, own), INDEX + 1) is None
        assert read_route_over_lo(route(text, own)) is None
        over_lo = route(text, own, index=LOOPBACK_INDEX, protocol=PROTOCOL_OVER_LO)
        assert read_route_over_lo(over_lo) == LocalRoute(socket_text(text), own)


MESSAGES = st.builds(
    route,
    st.ip_addresses(v=4).map(str),
    st.sampled_from(["", "192.0.2.1"]),
    prefix=st.sampled_from([None, 16]),
    index=st.sampled_from([INDEX, LOOPBACK_INDEX]),
    protocol=st.sampled_from([uapi.RTPROT_STATIC, PROTOCOL_OVER_LO]),
    table_first=st.booleans(),
) | st.builds(route, st.ip_addresses(v=6).map(str), prefix=st.sampled_from([None, 112]), kind=st.sampled_from([1, 2]))


@given(bodies=st.lists(MESSAGES, max_size=4) | MESSAGES.map(lambda message: [message] * 3), ends=st.booleans())
def test_a_datagram_has_the_routes_of_its_messages(bodies: list[memoryview], *, ends: bool) -> None:
    datagram = b"".join(packed_message(uapi.RTM_NEWROUTE, 2, 5, bytes(body)) for body in bodies)
    datagram += packed_message(3, 2, 5, bytes(4)) if ends else b""
    over_ours, over_lo = local_routes_in(memoryview(datagram), INDEX), routes_over_lo_in(memoryview(datagram))
    assert listed(over_ours) == sorted(one for body in bodies if (one := read_local_route(body, INDEX)))
    assert listed(over_lo) == sorted(one for body in bodies if (one := read_route_over_lo(body)))


def listed(by_source: dict[str, list[str]]) -> list[tuple[str, str]]:
    return sorted((destination, source) for source, routes in by_source.items() for destination in routes)


@pytest.mark.parametrize("source", ["", "192.0.2.1"])
def test_routes_that_differ_by_their_destination_are_read_together(source: str) -> None:
    wanted = [f"10.96.{number // 256}.{number % 256}" for number in range(300)]
    bodies = [bytes(route(destination, source)) for destination in wanted]
    datagram = b"".join(packed_message(uapi.RTM_NEWROUTE, 2, 5, body) for body in bodies)
    assert local_routes_in(memoryview(datagram), INDEX) == {source: wanted}
    assert local_routes_in(memoryview(datagram), INDEX + 1) == routes_over_lo_in(memoryview(datagram)) == {}


def socket_text(address: str) -> str:
    """The same address as the C library writes it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_ntop(family, socket.inet_pton(family, address))
