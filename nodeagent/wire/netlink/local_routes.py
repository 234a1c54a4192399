"""Reads our routes to addresses of Services: those that make them local, over the service interface or ``lo``, and those to IPv6 ranges."""

import socket
import struct
from functools import lru_cache
from typing import NamedTuple

from nodeagent.model.addresses import Family, unpack_address, unpack_addresses
from nodeagent.wire.netlink.framing import ATTRIBUTE, HEADER, attributes, messages, reader
from nodeagent.wire.netlink.rtnetlink import LOOPBACK_INDEX, PROTOCOL_OVER_LO
from nodeagent.wire.netlink.uapi import rtnetlink as uapi

_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags
_DESTINATION = _ROUTE.size + 3 * ATTRIBUTE.size
"""Where the destination is in most routes: behind the table, an attribute of eight bytes, and its own head."""
_U32 = struct.Struct("=I")
_OUR_PROTOCOLS = frozenset({uapi.RTPROT_STATIC, PROTOCOL_OVER_LO})


class LocalRoute(NamedTuple):
    """One of our routes: to an address, which is local because of it, or to an IPv6 range (text with a prefix length).

    source: the address that a connection of the node to there gets if its program chose none; empty: the kernel's choice.
    """

    destination: str
    source: str = ""


@reader
def may_be_local_route(body: memoryview) -> bool:
    """Returns whether `read_local_route` is worth its time. Cheap, and False for nearly all routes of a node that learns many."""
    return bool(body[5] in _OUR_PROTOCOLS and (body[7] == uapi.RTN_LOCAL or body[4] == uapi.RT_TABLE_LOCAL))


@reader
def read_local_route(body: memoryview, index: int | None) -> LocalRoute | None:
    """Returns one of our routes over interface `index` (None: over any); None for any other route."""
    return _local_route(body, index, uapi.RTPROT_STATIC)


@reader
def read_route_over_lo(body: memoryview) -> LocalRoute | None:
    """Returns one of our routes over ``lo``; None for any other route."""
    return _local_route(body, LOOPBACK_INDEX, PROTOCOL_OVER_LO)


@reader
def local_routes_in(datagram: memoryview, index: int | None) -> dict[str, list[str]]:
    """Returns the destinations of our routes over interface `index` (None: over any) in a datagram of a dump, by their source."""
    return _routes_in(datagram, index, uapi.RTPROT_STATIC)


@reader
def routes_over_lo_in(datagram: memoryview) -> dict[str, list[str]]:
    """Returns the destinations of our routes over ``lo`` in a datagram of a dump, by their source."""
    return _routes_in(datagram, LOOPBACK_INDEX, PROTOCOL_OVER_LO)


def _routes_in(datagram: memoryview, index: int | None, ours: int) -> dict[str, list[str]]:
    """Hundreds of routes in a datagram differ by their destination only, and are read together then."""
    if (alike := _alike(datagram)) is not None:
        before, destinations, behind = alike
        rest = _without_address(before + bytes(len(destinations[0])) + behind, index, ours)
        return {} if rest is None else {rest.source: [one + rest.destination for one in unpack_addresses(destinations)]}
    found: dict[str, list[str]] = {}
    for message in messages(datagram):
        if message.type == uapi.RTM_NEWROUTE and (route := _local_route(message.body, index, ours)) is not None:
            found.setdefault(route.source, []).append(route.destination)
    return found


def _alike(datagram: memoryview) -> tuple[bytes, tuple[bytes, ...], bytes] | None:
    """Returns what is before the destinations of all routes in a datagram, their destinations, and what is behind them; None if the
    messages differ in anything else."""
    start = HEADER.size + _DESTINATION
    if len(datagram) <= start:
        return None
    length, kind, *_ = HEADER.unpack_from(datagram)
    size = _address_length(datagram[HEADER.size :])
    if length < start + size or len(datagram) % length or kind != uapi.RTM_NEWROUTE:
        return None
    shape = f"{start}s{size}s{length - start - size}s"
    before, destinations, behind = zip(*struct.iter_unpack(shape, datagram), strict=True)
    if before.count(before[0]) != len(before) or behind.count(behind[0]) != len(behind):
        return None
    return (before[0][HEADER.size :], destinations, behind[0]) if _leads_to_destination(before[0], size) else None


def _address_length(body: memoryview) -> int:
    return Family.IPV4.address_length if body[0] == socket.AF_INET else Family.IPV6.address_length


def _leads_to_destination(before: bytes, size: int) -> bool:
    return before[-ATTRIBUTE.size :] == ATTRIBUTE.pack(ATTRIBUTE.size + size, uapi.RTA_DST)


def _local_route(body: memoryview, index: int | None, ours: int) -> LocalRoute | None:
    """Thousands of routes differ by their destination only, so what all other bytes mean is found once. The kernel writes the destination
    right behind the table (fib_dump_info, rt6_fill_node); where it does not, the route is read as a whole."""
    size = _address_length(body)
    before, packed = bytes(body[:_DESTINATION]), body[_DESTINATION : _DESTINATION + size]
    if len(packed) != size or not _leads_to_destination(before, size):
        return _whole_route(body, index, ours)
    rest = _without_address(b"".join((before, bytes(size), body[_DESTINATION + size :])), index, ours)
    return None if rest is None else LocalRoute(unpack_address(packed) + rest.destination, rest.source)


@lru_cache(maxsize=64)
def _without_address(body: bytes, index: int | None, ours: int) -> LocalRoute | None:
    """Returns a route whose destination is zero, without the text of that address."""
    found = _whole_route(memoryview(body), index, ours)
    return None if found is None else found._replace(destination=found.destination.lstrip("0.:"))


def _whole_route(body: memoryview, index: int | None, ours: int) -> LocalRoute | None:
    family, length, _, _, _, protocol, _, kind, flags = _ROUTE.unpack_from(body)
    if kind not in {uapi.RTN_LOCAL, uapi.RTN_UNICAST} or protocol != ours or flags & uapi.RTM_F_CLONED:
        return None
    found = dict(attributes(body[_ROUTE.size :]))
    packed = found.get(uapi.RTA_DST, b"")
    if index is not None and bytes(found.get(uapi.RTA_OIF, b"")) != _U32.pack(index):
        return None
    table = found.get(uapi.RTA_TABLE, b"")
    if bytes(table) != _U32.pack(uapi.RT_TABLE_LOCAL) or family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    source = unpack_address(found[uapi.RTA_PREFSRC]) if uapi.RTA_PREFSRC in found else ""
    if kind == uapi.RTN_UNICAST:
        to_range = family == socket.AF_INET6 and len(packed) == Family.IPV6.address_length
        return LocalRoute(f"{unpack_address(packed)}/{length}", source) if to_range else None
    return LocalRoute(unpack_address(packed), source) if packed and len(packed) * 8 == length else None
