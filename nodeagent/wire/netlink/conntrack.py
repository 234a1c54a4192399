"""Messages of the connection tracker: packs requests and reads UDP flows, nothing else.

The use of the attributes: net/netfilter/nf_conntrack_netlink.c.
"""

import errno
import socket
import struct
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from nodeagent.model.addresses import Family
from nodeagent.wire.netlink.framing import ATTRIBUTE, HEADER, Request, attribute, attributes, nested
from nodeagent.wire.netlink.netfilter import GENMSG_LENGTH, genmsg, message_type, u32
from nodeagent.wire.netlink.uapi import nfnetlink_conntrack as uapi
from nodeagent.wire.netlink.uapi.netlink import NLA_F_NESTED, NLM_F_CREATE, NLM_F_EXCL
from nodeagent.wire.netlink.uapi.nfnetlink import NFNL_SUBSYS_CTNETLINK

_NEW = message_type(NFNL_SUBSYS_CTNETLINK, uapi.IPCTNL_MSG_CT_NEW)
_GET = message_type(NFNL_SUBSYS_CTNETLINK, uapi.IPCTNL_MSG_CT_GET)
_DELETE = message_type(NFNL_SUBSYS_CTNETLINK, uapi.IPCTNL_MSG_CT_DELETE)
_UDP = socket.IPPROTO_UDP
NO_CONNTRACK = errno.EINVAL
"""How nfnetlink refuses a well-formed request if the kernel was built without conntrack over netlink (nfnetlink_rcv_msg)."""
_ALL_BITS = 0xFFFFFFFF
_HEADERS = HEADER.size + GENMSG_LENGTH
_LENGTH = struct.Struct("=I")
_U32 = struct.Struct("=I")
_PORT = struct.Struct(">H")
_IPV4_TUPLE = struct.Struct(">12s4s 4s4s 16sH 6sH2x")
"""Source address, destination address, source port and destination port, each after its headers."""
_ZONE_FOLLOWS = struct.pack("=H", uapi.CTA_ZONE)


class Flow(NamedTuple):
    """A tracked UDP flow of one family.

    destination, port: where the client sent to. reply_source, reply_port: where answers come from, which is the
    endpoint, or the destination itself if nothing was translated. Addresses are packed.
    message: the attributes in which the kernel described it; it is deleted by them.
    """

    destination: bytes
    port: int
    reply_source: bytes
    reply_port: int
    message: memoryview


class _Layout(NamedTuple):
    """The positions of the needed fields in a family's usual flow message.

    fields: ORIG header, destination, protocol, destination port, REPLY header, source, source port, next header.
    original, reply: the two tuple headers if their contents are as expected (no zone inside).
    """

    fields: struct.Struct
    original: bytes
    reply: bytes
    source_attribute: int
    destination_attribute: int


def _layout(address: int, source_attribute: int, destination_attribute: int) -> _Layout:
    pair = 2 * (4 + address)
    tuple_length = 4 + (4 + pair) + (4 + 24)
    template = (
        f">{_HEADERS}x 4s {4 + 4 + address + 4}x {address}s 8x B 15x H 2x"
        f" 4s 8x {address}s {4 + address + 4 + 8 + 4}x H 10x 4s"
    )
    return _Layout(
        struct.Struct(template),
        ATTRIBUTE.pack(tuple_length, uapi.CTA_TUPLE_ORIG | NLA_F_NESTED),
        ATTRIBUTE.pack(tuple_length, uapi.CTA_TUPLE_REPLY | NLA_F_NESTED),
        source_attribute,
        destination_attribute,
    )


_LAYOUTS = {
    Family.IPV4: _layout(Family.IPV4.address_length, uapi.CTA_IP_V4_SRC, uapi.CTA_IP_V4_DST),
    Family.IPV6: _layout(Family.IPV6.address_length, uapi.CTA_IP_V6_SRC, uapi.CTA_IP_V6_DST),
}


def dump_udp(
    family: Family,
    destination: bytes | None = None,
    port: int | None = None,
    *,
    source: bytes | None = None,
    of: int = _UDP,
) -> Request:
    """Returns the request for a dump of the UDP flows of a family, or those of protocol `of`; to one original destination and port,
    from one client.

    The kernel filters (>= 5.8); an older one returns all flows of the family. IPv6 addresses are not
    sent: the kernel would return the flows of all others (ctnetlink_filter_match_tuple treats the result of
    ipv6_addr_cmp as "equal"; so still in 6.18).
    """
    protocol = attribute(uapi.CTA_PROTO_NUM, bytes([of]))
    flags = uapi.CTA_FILTER_F_CTA_PROTO_NUM
    layout = _LAYOUTS[family]
    addresses = []
    if source is not None and family is Family.IPV4:
        addresses.append(attribute(layout.source_attribute, source))
        flags |= uapi.CTA_FILTER_F_CTA_IP_SRC
    if destination is not None and family is Family.IPV4:
        addresses.append(attribute(layout.destination_attribute, destination))
        flags |= uapi.CTA_FILTER_F_CTA_IP_DST
    parts = [nested(uapi.CTA_TUPLE_IP, *addresses)] if addresses else []
    if port is not None:
        protocol += attribute(uapi.CTA_PROTO_DST_PORT, _PORT.pack(port))
        flags |= uapi.CTA_FILTER_F_CTA_PROTO_DST_PORT
    parts.append(nested(uapi.CTA_TUPLE_PROTO, protocol))
    body = genmsg(family.socket_family)
    chosen = nested(uapi.CTA_FILTER, attribute(uapi.CTA_FILTER_ORIG_FLAGS, _U32.pack(flags)))
    return Request(_GET, 0, body + nested(uapi.CTA_TUPLE_ORIG, *parts) + chosen)


def create_flow(
    source: tuple[bytes, int],
    destination: tuple[bytes, int],
    *,
    mark: int,
    seconds: int,
    answer: tuple[tuple[bytes, int], tuple[bytes, int]] | None = None,
    protocol: int = _UDP,
) -> Request:
    """Returns the request to create a flow, of UDP by default, between two IPv4 addresses and ports; the kernel does not drop it for
    new ones (assured).

    mark: `delete_marked` finds it by this. It ends automatically after `seconds`. answer: source and destination of answers, if
    both ends are translated.
    """
    tuples = _ipv4_tuple(uapi.CTA_TUPLE_ORIG, source, destination, protocol) + _ipv4_tuple(
        uapi.CTA_TUPLE_REPLY, *(answer or (destination, source)), protocol
    )
    return Request(_NEW, NLM_F_CREATE | NLM_F_EXCL, genmsg(socket.AF_INET) + tuples + _assured(mark, seconds))


def delete_marked(mark: int) -> Request:
    """Returns the request to delete all IPv4 flows with a mark, and no other."""
    return Request(_DELETE, 0, genmsg(socket.AF_INET) + u32(uapi.CTA_MARK, mark) + u32(uapi.CTA_MARK_MASK, _ALL_BITS))


def delete_flow(family: Family, flow: Flow) -> Request:
    """Returns the request to delete exactly this flow: by its original tuple and its id, so that a successor with the same tuple stays.

    Raises ValueError for a message without a tuple: such a request would mean "delete every flow".
    """
    wanted = {
        kind: bytes(value) for kind, value in attributes(flow.message) if kind in {uapi.CTA_TUPLE_ORIG, uapi.CTA_ID}
    }
    if uapi.CTA_TUPLE_ORIG not in wanted:
        raise ValueError("a flow without an original tuple")
    body = genmsg(family.socket_family) + attribute(uapi.CTA_TUPLE_ORIG | NLA_F_NESTED, wanted[uapi.CTA_TUPLE_ORIG])
    if uapi.CTA_ID in wanted:
        body += attribute(uapi.CTA_ID, wanted[uapi.CTA_ID])
    return Request(_DELETE, 0, body)


def read_flows(family: Family, datagram: memoryview, *, wanted: int = _UDP) -> Iterator[Flow]:
    """Yields the UDP flows, or those of another protocol, in a datagram of a dump, each valid as long as the datagram is.

    Flows in a conntrack zone are left out: they belong to another network stack.
    """
    layout = _LAYOUTS[family]
    fields, original, reply = layout.fields, layout.original, layout.reply
    needed = fields.size
    offset = 0
    end = len(datagram)
    while offset + _HEADERS < end:
        length = _LENGTH.unpack_from(datagram, offset)[0]
        if length < HEADER.size or offset + length > end:
            return
        message = datagram[offset + _HEADERS : offset + length]
        usual = False
        if length >= needed:
            first, destination, protocol, port, second, source, source_port, following = fields.unpack_from(
                datagram, offset
            )
            usual = first == original and second == reply
        if usual:
            if protocol == wanted and following[2:] != _ZONE_FOLLOWS:
                yield Flow(destination, port, source, source_port, message)
        elif (flow := _read_unusual(layout, message, wanted)) is not None:
            yield flow
        offset += length + 3 & ~3


def client_of(family: Family, flow: Flow) -> tuple[bytes, int] | None:
    """Returns the client of a flow: packed address and port; None if the message lacks them."""
    original = dict(attributes(flow.message)).get(uapi.CTA_TUPLE_ORIG, memoryview(b""))
    parts = dict(attributes(original))
    addresses = dict(attributes(parts.get(uapi.CTA_TUPLE_IP, memoryview(b""))))
    ports = dict(attributes(parts.get(uapi.CTA_TUPLE_PROTO, memoryview(b""))))
    address = addresses.get(_LAYOUTS[family].source_attribute)
    port = ports.get(uapi.CTA_PROTO_SRC_PORT)
    return None if address is None or port is None else (bytes(address), int.from_bytes(port, "big"))


def masquerade_address(family: Family, flow: Flow) -> bytes | None:
    """Returns the packed address that replaces the address of a flow's client; None if the client keeps its own."""
    layout, message, length = _LAYOUTS[family], flow.message, family.address_length
    second = len(layout.original) + 4 + 2 * (4 + length) + 4 + 24
    if message[:4] == layout.original and message[second : second + 4] == layout.reply:
        client = bytes(message[12 : 12 + length])
        translated = bytes(message[second + 16 + length : second + 16 + 2 * length])
    else:
        top = dict(attributes(message))
        client = _address(top, uapi.CTA_TUPLE_ORIG, layout.source_attribute)
        translated = _address(top, uapi.CTA_TUPLE_REPLY, layout.destination_attribute)
    return None if translated in (client, b"") else translated


def _address(message: dict[int, memoryview], direction: int, which: int) -> bytes:
    parts = dict(attributes(message.get(direction, memoryview(b""))))
    return bytes(dict(attributes(parts.get(uapi.CTA_TUPLE_IP, memoryview(b"")))).get(which, b""))


def state_bit(info: int) -> bytes:
    """Returns the bit of `ct state` for a number of enum ip_conntrack_info, as a register of a rule holds it (NF_CT_STATE_BIT)."""
    return _U32.pack(1 << (info % uapi.IP_CT_IS_REPLY + 1))


class FlowState(NamedTuple):
    """The state of a tracked flow. answered: a packet came back. left: seconds until the flow is dropped, without further
    packets. state: TCP_CONNTRACK_… (linux/netfilter/nf_conntrack_tcp.h); 0 for other protocols."""

    answered: bool
    left: int
    state: int


def state_of_flow(flow: Flow) -> FlowState:
    """Returns the state of a flow."""
    top = dict(attributes(flow.message))
    status, left = (int.from_bytes(top.get(kind, b""), "big") for kind in (uapi.CTA_STATUS, uapi.CTA_TIMEOUT))
    info = dict(attributes(top.get(uapi.CTA_PROTOINFO, memoryview(b""))))
    tcp = dict(attributes(info.get(uapi.CTA_PROTOINFO_TCP, memoryview(b""))))
    state = int.from_bytes(tcp.get(uapi.CTA_PROTOINFO_TCP_STATE, b""), "big")
    return FlowState(bool(status & uapi.IPS_SEEN_REPLY), left, state)


def _ipv4_tuple(kind: int, source: tuple[bytes, int], destination: tuple[bytes, int], protocol: int) -> bytes:
    before_source, before_destination, before_port, before_other_port = _tuple_headers(kind, protocol)
    return _IPV4_TUPLE.pack(
        *(before_source, source[0], before_destination, destination[0]),
        *(before_port, source[1], before_other_port, destination[1]),
    )


@cache
def _tuple_headers(kind: int, protocol: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Returns the bytes before both addresses and both ports: equal in each tuple, and a full table is 250,000 of them."""
    address, port = bytes(4), bytes(2)
    addresses = nested(
        uapi.CTA_TUPLE_IP, attribute(uapi.CTA_IP_V4_SRC, address), attribute(uapi.CTA_IP_V4_DST, address)
    )
    ports = nested(
        uapi.CTA_TUPLE_PROTO,
        attribute(uapi.CTA_PROTO_NUM, bytes([protocol])),
        attribute(uapi.CTA_PROTO_SRC_PORT, port),
        attribute(uapi.CTA_PROTO_DST_PORT, port),
    )
    first, _, second, _, third, _, fourth, _ = _IPV4_TUPLE.unpack(nested(kind, addresses, ports))
    return first, second, third, fourth


@lru_cache(maxsize=8)
def _assured(mark: int, seconds: int) -> bytes:
    status = u32(uapi.CTA_STATUS, uapi.IPS_SEEN_REPLY | uapi.IPS_ASSURED | uapi.IPS_CONFIRMED)
    return status + u32(uapi.CTA_TIMEOUT, seconds) + u32(uapi.CTA_MARK, mark)


def _read_unusual(layout: _Layout, message: memoryview, wanted: int = _UDP) -> Flow | None:
    """Reads a flow attribute by attribute; returns None for another protocol or a flow in a zone."""
    top = dict(attributes(message))
    if uapi.CTA_ZONE in top or uapi.CTA_TUPLE_ORIG not in top or uapi.CTA_TUPLE_REPLY not in top:
        return None
    tuples = [dict(attributes(top[kind])) for kind in (uapi.CTA_TUPLE_ORIG, uapi.CTA_TUPLE_REPLY)]
    if any(
        uapi.CTA_TUPLE_ZONE in parts or not {uapi.CTA_TUPLE_IP, uapi.CTA_TUPLE_PROTO} <= parts.keys()
        for parts in tuples
    ):
        return None
    addresses = [dict(attributes(parts[uapi.CTA_TUPLE_IP])) for parts in tuples]
    ports = [dict(attributes(parts[uapi.CTA_TUPLE_PROTO])) for parts in tuples]
    if bytes(ports[0].get(uapi.CTA_PROTO_NUM, b"")) != bytes([wanted]):
        return None
    destination = addresses[0].get(layout.destination_attribute)
    source = addresses[1].get(layout.source_attribute)
    port, source_port = ports[0].get(uapi.CTA_PROTO_DST_PORT), ports[1].get(uapi.CTA_PROTO_SRC_PORT)
    if destination is None or source is None or port is None or source_port is None:
        return None
    return Flow(
        bytes(destination), int.from_bytes(port, "big"), bytes(source), int.from_bytes(source_port, "big"), message
    )
