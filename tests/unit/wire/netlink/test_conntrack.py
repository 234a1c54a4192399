"""Flows as the kernel describes them: the usual layout, the unusual ones, and broken datagrams."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Family, pack_address
from nodeagent.wire.netlink.conntrack import Flow, create_flow, delete_flow, dump_udp, masquerade_address, read_flows
from nodeagent.wire.netlink.framing import attribute, nested

CLIENT, VIP, POD = "10.0.0.1", "10.96.0.1", "10.244.0.5"
CLIENT6, VIP6, POD6 = "fd00::1", "fd00:96::1", "fd00:244::5"
UDP, TCP = 17, 6


def a_tuple(kind: int, source: str, destination: str, protocol: int, ports: tuple[int, int], *extra: bytes) -> bytes:
    first = 3 if ":" in source else 1
    addresses = nested(1, attribute(first, pack_address(source)), attribute(first + 1, pack_address(destination)))
    numbers = nested(
        2,
        attribute(1, bytes([protocol])),
        attribute(2, struct.pack(">H", ports[0])),
        attribute(3, struct.pack(">H", ports[1])),
    )
    return nested(kind, addresses, numbers, *extra)


def message(*attributes: bytes) -> bytes:
    body = bytes(4) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), 256, 2, 1, 0) + body


STATUS, ID = attribute(3, bytes(4)), attribute(12, b"\x01\x02\x03\x04")
ZONE = attribute(18, b"\x00\x07")
ORIGINAL = a_tuple(1, CLIENT, VIP, UDP, (1000, 53))
REPLY = a_tuple(2, POD, CLIENT, UDP, (5353, 1000))


def read(family: Family, *messages: bytes) -> list[Flow]:
    return list(read_flows(family, memoryview(b"".join(messages))))


@pytest.mark.parametrize(
    ("family", "attributes", "expected"),
    [
        pytest.param(Family.IPV4, (ORIGINAL, REPLY, STATUS, ID), (VIP, 53, POD, 5353), id="IPv4"),
        pytest.param(
            Family.IPV6,
            (a_tuple(1, CLIENT6, VIP6, UDP, (1000, 53)), a_tuple(2, POD6, CLIENT6, UDP, (5353, 1000)), STATUS, ID),
            (VIP6, 53, POD6, 5353),
            id="IPv6",
        ),
        pytest.param(Family.IPV4, (STATUS, REPLY, ORIGINAL), (VIP, 53, POD, 5353), id="another order of attributes"),
        pytest.param(Family.IPV4, (ORIGINAL, REPLY), (VIP, 53, POD, 5353), id="nothing after the tuples"),
        pytest.param(
            Family.IPV4,
            (a_tuple(1, CLIENT, VIP, TCP, (1, 53)), a_tuple(2, POD, CLIENT, TCP, (53, 1)), STATUS),
            None,
            id="TCP",
        ),
        pytest.param(Family.IPV4, (ORIGINAL, REPLY, ZONE, STATUS), None, id="in a zone"),
        pytest.param(
            Family.IPV4,
            (a_tuple(1, CLIENT, VIP, UDP, (1000, 53), attribute(3, b"\0\7")), REPLY),
            None,
            id="one direction in a zone",
        ),
        pytest.param(Family.IPV4, (ORIGINAL,), None, id="no reply tuple"),
        pytest.param(Family.IPV4, (), None, id="nothing"),
    ],
)
def test_a_flow(family: Family, attributes: tuple[bytes, ...], expected: tuple[str, int, str, int] | None) -> None:
    flows = read(family, message(*attributes))

    if expected is None:
        assert flows == []
        return
    destination, port, source, source_port = expected
    assert [flow[:4] for flow in flows] == [(pack_address(destination), port, pack_address(source), source_port)]


def test_all_flows_of_a_datagram_are_read() -> None:
    one = message(ORIGINAL, REPLY, STATUS, ID)
    odd = message(STATUS, ORIGINAL, REPLY)

    assert len(read(Family.IPV4, one, odd, one, one)) == 4


@given(st.binary(max_size=200), st.integers(min_value=0, max_value=200))
def test_broken_datagrams_are_read_without_harm(noise: bytes, cut: int) -> None:
    good = message(ORIGINAL, REPLY, STATUS, ID)

    assert len(read(Family.IPV4, good, noise)) >= 1
    assert len(read(Family.IPV4, good[:cut])) <= 1


def test_a_deletion_names_tuple_and_id() -> None:
    [flow] = read(Family.IPV4, message(ORIGINAL, REPLY, STATUS, ID))

    request = delete_flow(Family.IPV4, flow)

    assert ORIGINAL in request.body
    assert request.body.endswith(ID)
    assert REPLY not in request.body


def test_a_deletion_without_a_tuple_would_delete_everything_and_is_refused() -> None:
    with pytest.raises(ValueError, match="tuple"):
        delete_flow(Family.IPV4, Flow(b"", 0, b"", 0, memoryview(ID)))


@pytest.mark.parametrize(
    ("family", "source", "destination", "port", "flags"),
    [
        pytest.param(Family.IPV4, None, None, None, 0b001000, id="all UDP"),
        pytest.param(Family.IPV4, None, None, 53, 0b101000, id="UDP to a port"),
        pytest.param(Family.IPV4, None, VIP, 53, 0b101010, id="UDP to an address and port"),
        pytest.param(Family.IPV4, CLIENT, VIP, 53, 0b101011, id="UDP of one client to an address and port"),
        pytest.param(
            *(Family.IPV6, CLIENT6, VIP6, 53, 0b101000),
            id="IPv6 only by port, because the kernel gets addresses wrong",
        ),
    ],
)
def test_the_kernel_is_asked_to_select(
    family: Family, source: str | None, destination: str | None, port: int | None, flags: int
) -> None:
    client, to = (None if one is None else pack_address(one) for one in (source, destination))
    request = dump_udp(family, to, port, source=client)

    assert request.body.endswith(nested(25, attribute(1, struct.pack("=I", flags))))


NODE, NODE6 = "192.168.0.2", "2001:db8::2"


@pytest.mark.parametrize(
    ("family", "attributes", "expected"),
    [
        pytest.param(Family.IPV4, (ORIGINAL, REPLY, STATUS), None, id="its own"),
        pytest.param(Family.IPV4, (ORIGINAL, a_tuple(2, POD, NODE, UDP, (5353, 9)), STATUS), NODE, id="IPv4"),
        pytest.param(Family.IPV4, (STATUS, a_tuple(2, POD, NODE, UDP, (5353, 9)), ORIGINAL), NODE, id="another order"),
        pytest.param(
            Family.IPV6,
            (a_tuple(1, CLIENT6, VIP6, UDP, (1000, 53)), a_tuple(2, POD6, NODE6, UDP, (5353, 9)), STATUS),
            NODE6,
            id="IPv6",
        ),
    ],
)
def test_the_address_that_stands_for_a_client(
    family: Family, attributes: tuple[bytes, ...], expected: str | None
) -> None:
    (flow,) = read(family, message(*attributes))
    assert masquerade_address(family, flow) == (None if expected is None else pack_address(expected))


@pytest.mark.parametrize("protocol", [UDP, TCP])
def test_a_flow_is_created_between_these_addresses_and_ports(protocol: int) -> None:
    client, vip, pod = ((pack_address(address), port) for address, port in ((CLIENT, 1000), (VIP, 53), (POD, 5353)))
    request = create_flow(client, vip, mark=7, seconds=30, answer=(pod, client), protocol=protocol)
    original = a_tuple(1, CLIENT, VIP, protocol, (1000, 53))
    reply = a_tuple(2, POD, CLIENT, protocol, (5353, 1000))
    seconds_and_mark = attribute(7, b"\0\0\0\x1e") + attribute(8, b"\0\0\0\x07")
    assert request.body.startswith(b"\x02\0\0\0" + original + reply)
    assert request.body.endswith(seconds_and_mark)


def test_a_flow_that_is_not_translated_is_answered_from_where_it_goes() -> None:
    request = create_flow((pack_address(CLIENT), 1000), (pack_address(VIP), 53), mark=7, seconds=30)
    assert request.body[4:].startswith(ORIGINAL + a_tuple(2, VIP, CLIENT, UDP, (53, 1000)))
