"""Messages of the connection tracker's netlink interface: packing requests and reading flows, nothing else.

Attribute numbers: linux/netfilter/nfnetlink_conntrack.h; their use: net/netfilter/nf_conntrack_netlink.c.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from nodeagent.dataplane.conntrack_stale import Flow
from nodeagent.dataplane.framing import attribute, attributes, nested
from nodeagent.dataplane.netlink import Request
from nodeagent.model.addresses import Family

_GET = 1 << 8 | 1
_DELETE = 1 << 8 | 2

_CTA_TUPLE_ORIG = 1
_CTA_TUPLE_REPLY = 2
_CTA_ID = 12
_CTA_ZONE = 18
_CTA_FILTER = 25
_CTA_TUPLE_IP = 1
_CTA_TUPLE_PROTO = 2
_CTA_TUPLE_ZONE = 3
_CTA_PROTO_NUM = 1
_CTA_PROTO_SRC_PORT = 2
_CTA_PROTO_DST_PORT = 3
_CTA_FILTER_ORIG_FLAGS = 1
_FILTER_DESTINATION = 1 << 1
_FILTER_PROTOCOL = 1 << 3
_FILTER_DESTINATION_PORT = 1 << 5

_UDP = 17
_HEADERS = 16 + 4  # nlmsghdr, nfgenmsg
_LENGTH = struct.Struct("=I")
_U32 = struct.Struct("=I")
_PORT = struct.Struct(">H")
_NFGENMSG = struct.Struct(">BBH")
_ZONE_FOLLOWS = struct.pack("=H", _CTA_ZONE)


class _Layout(NamedTuple):
    """Where a family's usual flow message has what interests us.

    fields: ORIG header, destination, protocol, destination port, REPLY header, source, source port, next header.
    original, reply: the two tuple headers when their contents are as expected (no zone inside).
    """

    fields: struct.Struct
    original: bytes
    reply: bytes
    source_attribute: int


def _layout(address: int, source_attribute: int) -> _Layout:
    pair = 2 * (4 + address)
    tuple_length = 4 + (4 + pair) + (4 + 24)
    template = (
        f">{_HEADERS}x 4s {4 + 4 + address + 4}x {address}s 8x B 15x H 2x"
        f" 4s 8x {address}s {4 + address + 4 + 8 + 4}x H 10x 4s"
    )
    header = struct.Struct("=HH")
    return _Layout(
        struct.Struct(template),
        header.pack(tuple_length, _CTA_TUPLE_ORIG | 0x8000),
        header.pack(tuple_length, _CTA_TUPLE_REPLY | 0x8000),
        source_attribute,
    )


_LAYOUTS = {Family.IPV4: _layout(4, 1), Family.IPV6: _layout(16, 3)}


def dump_udp(family: Family, destination: bytes | None = None, port: int | None = None) -> Request:
    """A dump of the UDP flows of a family; to one original destination and port, where given.

    The kernel does the selection (>= 5.8); an older one returns all flows of the family. An IPv6 destination is not
    passed on: the kernel then returns the flows to all others (ctnetlink_filter_match_tuple takes the result of
    ipv6_addr_cmp for "equal"; so still in 6.18).
    """
    protocol = attribute(_CTA_PROTO_NUM, bytes([_UDP]))
    flags = _FILTER_PROTOCOL
    parts = []
    if destination is not None and family is Family.IPV4:
        parts.append(nested(_CTA_TUPLE_IP, attribute(_LAYOUTS[family].source_attribute + 1, destination)))
        flags |= _FILTER_DESTINATION
    if port is not None:
        protocol += attribute(_CTA_PROTO_DST_PORT, _PORT.pack(port))
        flags |= _FILTER_DESTINATION_PORT
    parts.append(nested(_CTA_TUPLE_PROTO, protocol))
    body = _NFGENMSG.pack(family.socket_family, 0, 0)
    chosen = nested(_CTA_FILTER, attribute(_CTA_FILTER_ORIG_FLAGS, _U32.pack(flags)))
    return Request(_GET, 0, body + nested(_CTA_TUPLE_ORIG, *parts) + chosen)


def delete_flow(family: Family, flow: Flow) -> Request:
    """Deletes exactly this flow: by its original tuple and its id, so that a successor with the same tuple stays.

    Raises ValueError for a message without a tuple: sent like that it would mean "delete every flow".
    """
    wanted = {kind: bytes(value) for kind, value in attributes(flow.message) if kind in {_CTA_TUPLE_ORIG, _CTA_ID}}
    if _CTA_TUPLE_ORIG not in wanted:
        raise ValueError("a flow without an original tuple")
    body = _NFGENMSG.pack(family.socket_family, 0, 0) + attribute(_CTA_TUPLE_ORIG | 0x8000, wanted[_CTA_TUPLE_ORIG])
    if _CTA_ID in wanted:
        body += attribute(_CTA_ID, wanted[_CTA_ID])
    return Request(_DELETE, 0, body)


def read_flows(family: Family, datagram: memoryview) -> Iterator[Flow]:
    """The UDP flows in a datagram of a dump, each valid as long as the datagram is.

    Flows in a conntrack zone are left out: they belong to somebody else's network stack.
    """
    layout = _LAYOUTS[family]
    fields, original, reply, _ = layout
    needed = fields.size
    offset = 0
    end = len(datagram)
    while offset + _HEADERS < end:
        length = _LENGTH.unpack_from(datagram, offset)[0]
        if length < 16 or offset + length > end:
            return
        message = datagram[offset + _HEADERS : offset + length]
        usual = False
        if length >= needed:
            first, destination, protocol, port, second, source, source_port, following = fields.unpack_from(
                datagram, offset
            )
            usual = first == original and second == reply
        if usual:
            if protocol == _UDP and following[2:] != _ZONE_FOLLOWS:
                yield Flow(destination, port, source, source_port, message)
        elif (flow := _read_unusual(layout, message)) is not None:
            yield flow
        offset += length + 3 & ~3


def _read_unusual(layout: _Layout, message: memoryview) -> Flow | None:
    """The same, attribute by attribute; None for what is no UDP flow or is in a zone."""
    top = dict(attributes(message))
    if _CTA_ZONE in top or _CTA_TUPLE_ORIG not in top or _CTA_TUPLE_REPLY not in top:
        return None
    tuples = [dict(attributes(top[kind])) for kind in (_CTA_TUPLE_ORIG, _CTA_TUPLE_REPLY)]
    if any(_CTA_TUPLE_ZONE in parts or not {_CTA_TUPLE_IP, _CTA_TUPLE_PROTO} <= parts.keys() for parts in tuples):
        return None
    addresses = [dict(attributes(parts[_CTA_TUPLE_IP])) for parts in tuples]
    ports = [dict(attributes(parts[_CTA_TUPLE_PROTO])) for parts in tuples]
    if bytes(ports[0].get(_CTA_PROTO_NUM, b"")) != bytes([_UDP]):
        return None
    destination = addresses[0].get(layout.source_attribute + 1)
    source = addresses[1].get(layout.source_attribute)
    port, source_port = ports[0].get(_CTA_PROTO_DST_PORT), ports[1].get(_CTA_PROTO_SRC_PORT)
    if destination is None or source is None or port is None or source_port is None:
        return None
    return Flow(
        bytes(destination), int.from_bytes(port, "big"), bytes(source), int.from_bytes(source_port, "big"), message
    )
