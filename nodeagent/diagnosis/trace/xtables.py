"""Evaluates extensions of iptables, which nft lists only by name, from the bytes that iptables gave the kernel (pure).

Layouts: linux/netfilter/xt_*.h and x_tables.h. Everything else is unknown.
"""

import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

from nodeagent.diagnosis.simulator.packet import TCP, UDP
from nodeagent.diagnosis.trace.matching import Unknown, covers
from nodeagent.diagnosis.trace.traveller import CLIENT_PORTS, Traveller
from nodeagent.model.addresses import Family, pack_address, unpack_address
from nodeagent.wire.netlink.nf_tables.rule_reading import Extension

PASSING = frozenset(
    {"LOG", "NFLOG", "ULOG", "TRACE", "CHECKSUM", "TCPMSS", "TCPOPTSTRIP", "CLASSIFY", "DSCP", "TOS", "TTL", "HL"}
    | {"CONNMARK", "SECMARK", "CONNSECMARK", "SET", "AUDIT", "LED", "HMARK", "RATEEST", "IDLETIMER", "ECN"}
)
"""Targets that do not change where a packet goes, as far as evaluated here: a new connection has no mark to restore."""
_ALTERING = frozenset({"DNAT", "REDIRECT", "SNAT", "MASQUERADE", "NETMAP", "MARK", "CT", "NOTRACK"})


def may_stop(name: str) -> bool:
    """Returns whether a target may stop the packet: any that is not known to let it pass."""
    return name not in PASSING | _ALTERING


_STATE, _PROTOCOL, _SOURCE, _DESTINATION = 0x1, 0x2, 0x4, 0x8
_STATUS = 0x40
_SOURCE_PORT, _DESTINATION_PORT = 0x100, 0x200
_DIRECTION, _STATE_ALIAS = 0x1000, 0x2000
_KNOWN = (
    _STATE | _PROTOCOL | _SOURCE | _DESTINATION | _STATUS | _SOURCE_PORT | _DESTINATION_PORT | _DIRECTION | _STATE_ALIAS
)
"""XT_CONNTRACK_… that can be known before the packet exists."""
_CONNTRACK_ADDRESSES = struct.Struct("=16s16s16s16s")
_CONNTRACK_PORTS, _CONNTRACK_FLAGS, _CONNTRACK_HIGH = 136, 146, 154
_WITH_RANGES = 3
"""Since this revision the match has port ranges in host byte order; before, single ports in network byte order."""
_NAT_BITS = {1 << 7: 1 << 5, 1 << 6: 1 << 4}
"""XT_CONNTRACK_STATE_DNAT, …_SNAT → IPS_DST_NAT, IPS_SRC_NAT."""
_STATES = {1: 1, 2: 1 << 1, 4: 1 << 2, 8: 1 << 3, 64: 1 << 8}
"""Our bit of a state → XT_CONNTRACK_STATE_…: without a state it is bit 0, for IP_CT_NEW bit 3, for untracked bit 8."""
_ADDRTYPE = struct.Struct("=HHI")
_LOCAL, _UNICAST = 1 << 2, 1 << 1
_INVERT_SOURCE, _INVERT_DESTINATION = 1, 2
_MULTIPORT = struct.Struct("=BB15H15BB")
_TCP = struct.Struct("=4H4B")
_UDP = struct.Struct("=4HB")
_ICMP = struct.Struct("=4B")
_ANY_TYPE = 0xFF
_TCP_RESET = {Family.IPV4: 7, Family.IPV6: 6}
"""In ipt_reject_with and ip6t_reject_with."""
_TYPES = {"destination-unreachable": 3, "packet-too-big": 2, "nd-neighbor-solicit": 135}
_MARK = struct.Struct("=IIB")
_MARK_TARGET = struct.Struct("=II")
_CT_TARGET = struct.Struct("=HH")
_ZONE_BY_MARK, _ONE_DIRECTION = 16, 12
_DIRECTIONS = {4: "original", 8: "reply"}
"""XT_CT_ZONE_DIR_ORIG, XT_CT_ZONE_DIR_REPL."""
_NAT_RANGE = struct.Struct("=I16s16s2s2s")
_OLD_NAT_RANGE = struct.Struct("=II4s4s2s2s")
_MAPS_IPS, _MAPS_PORTS = 1, 2


def matches(call: Extension, traveller: Traveller) -> bool:
    """Returns whether an extension's match holds. Raises Unknown."""
    known = _MATCHES.get(call.name)
    if known is None:
        raise Unknown(f"xt match {call.name}")
    try:
        return known(call, traveller)
    except struct.error as error:
        raise Unknown(f"xt match {call.name} revision {call.revision}") from error


class Translation(NamedTuple):
    """A new destination; None for a part that does not change."""

    address: str | None
    port: int | None


def translation(call: Extension, traveller: Traveller) -> Translation:
    """Returns the destination of a DNAT or REDIRECT, or the source of an SNAT; the first of several. Raises Unknown."""
    length = traveller.packet.family.address_length
    try:
        if call.revision == 0:
            _, flags, address, _, port, _ = _OLD_NAT_RANGE.unpack_from(call.data)
        else:
            flags, whole, _, port, _ = _NAT_RANGE.unpack_from(call.data)
            address = whole[:length]
    except struct.error as error:
        raise Unknown(f"xt target {call.name} revision {call.revision}") from error
    return Translation(
        unpack_address(address) if flags & _MAPS_IPS else None,
        int.from_bytes(port, "big") if flags & _MAPS_PORTS else None,
    )


def marked(call: Extension, mark: int) -> int:
    """Returns the packet's mark after a MARK target. Raises Unknown."""
    try:
        value, mask = _MARK_TARGET.unpack_from(call.data)
    except struct.error as error:
        raise Unknown("xt target MARK") from error
    return int(mark & ~mask ^ value)


def resets(call: Extension, family: Family) -> bool:
    """Returns whether a REJECT target answers with a TCP reset (IPT_TCP_RESET, IP6T_TCP_RESET)."""
    return call.data[:4] == _TCP_RESET[family].to_bytes(4, sys.byteorder)


def untracks(call: Extension) -> bool:
    """Returns whether a CT or NOTRACK target leaves the packet untracked (XT_CT_NOTRACK)."""
    return call.name == "NOTRACK" or bool(call.data[:1] and call.data[0] & 1)


class ZoneOf(NamedTuple):
    """A zone of connection tracking, and its direction; empty: both."""

    number: int
    direction: str


def zone(call: Extension) -> ZoneOf | None:
    """Returns the zone that a CT target names, or None. Raises Unknown."""
    if len(call.data) < _CT_TARGET.size or call.name == "NOTRACK":
        return None
    flags, number = _CT_TARGET.unpack_from(call.data)
    if flags & _ZONE_BY_MARK:
        raise Unknown("xt target CT --zone mark")
    return ZoneOf(number, _DIRECTIONS.get(flags & _ONE_DIRECTION, "")) if number else None


def _conntrack(call: Extension, traveller: Traveller) -> bool:
    asked, inverted, states, statuses = struct.unpack_from("=4H", call.data, _CONNTRACK_FLAGS)
    if not traveller.has_connection:
        # Then only the state is compared (xt_conntrack.c, conntrack_mt).
        return bool(asked & _STATE) and bool(states & _STATES[traveller.state]) is not bool(inverted & _STATE)
    if asked & ~_KNOWN:
        raise Unknown("xt match conntrack")
    mine = _STATES.get(traveller.state, 0)
    for named, bit in _NAT_BITS.items():
        mine |= named if traveller.machine.status & bit else 0
    protocol, source_port, port = struct.unpack_from("=3H", call.data, _CONNTRACK_PORTS)
    original = traveller.original
    source, source_mask, destination, mask = _CONNTRACK_ADDRESSES.unpack_from(call.data)
    tests: dict[int, Callable[[], bool]] = {
        _STATE: lambda: bool(states & mine),
        _STATUS: lambda: bool(statuses & traveller.machine.status),
        _DIRECTION: lambda: traveller.request is None,
        _PROTOCOL: lambda: protocol == original.protocol,
        _SOURCE: lambda: _is_within(original.source, source, source_mask),
        _DESTINATION: lambda: _is_within(original.destination, destination, mask),
        _DESTINATION_PORT: lambda: _is_port(call, port, 1, original.destination_port),
        _SOURCE_PORT: lambda: _is_port(call, source_port, 0, CLIENT_PORTS),
    }
    return all(test() is not bool(inverted & flag) for flag, test in tests.items() if asked & flag)


def _is_within(address: str, wanted: bytes, mask: bytes) -> bool:
    packed = pack_address(address)
    return all(one & bits == other & bits for one, other, bits in zip(packed, wanted, mask, strict=False))


def _is_port(call: Extension, first: int, place: int, port: int | range) -> bool:
    """Returns whether a port is the wanted one, or in the wanted range. place: of the end of the range. Raises Unknown."""
    if call.revision < _WITH_RANGES:
        first = int.from_bytes(first.to_bytes(2, sys.byteorder), "big")
        return covers(first, first, port)
    return covers(first, struct.unpack_from("=2H", call.data, _CONNTRACK_HIGH)[place], port)


def _state(call: Extension, traveller: Traveller) -> bool:
    (states,) = struct.unpack_from("=I", call.data)
    return bool(states & _STATES.get(traveller.state, 0))


def _address_type(call: Extension, traveller: Traveller) -> bool:
    source, destination, flags = _ADDRTYPE.unpack_from(call.data)
    held = True
    for wanted, address, invert in (
        (source, traveller.packet.source, _INVERT_SOURCE),
        (destination, traveller.machine.destination, _INVERT_DESTINATION),
    ):
        if wanted:
            kind = _LOCAL if traveller.machine.is_local(address) else _UNICAST
            held = held and bool(wanted & kind) is not bool(flags & invert)
    return held


def _multiport(call: Extension, traveller: Traveller) -> bool:
    flags, count, *rest = _MULTIPORT.unpack_from(call.data)
    ports, ranges, invert = rest[:15], rest[15:30], rest[30]
    asked = [[traveller.source_port], [traveller.destination_port], [traveller.source_port, traveller.destination_port]]
    held, at = False, 0
    while at < count:
        last = ports[at + 1] if ranges[at] and at + 1 < count else ports[at]
        held = held or any(covers(ports[at], last, port) for port in asked[flags])
        at += 2 if ranges[at] else 1
    return held is not bool(invert)


def _tcp(call: Extension, traveller: Traveller) -> bool:
    first, last, low, high, option, mask, wanted, inverted = _TCP.unpack_from(call.data)
    if traveller.packet.protocol != TCP:
        return False
    if option:
        raise Unknown("options of TCP")
    flags = (traveller.packet.tcp_flags & mask == wanted) is not bool(inverted & 4)
    return flags and _ports(traveller, (first, last), (low, high), inverted)


def _udp(call: Extension, traveller: Traveller) -> bool:
    first, last, low, high, inverted = _UDP.unpack_from(call.data)
    if traveller.packet.protocol != UDP:
        return False
    return _ports(traveller, (first, last), (low, high), inverted)


def _ports(traveller: Traveller, source: tuple[int, int], destination: tuple[int, int], inverted: int) -> bool:
    """Returns whether both ports are in their ranges; inverted: bit 1 for the source's, 2 for the destination's
    (XT_TCP_INV_SRCPT, …)."""
    return (covers(*destination, traveller.destination_port) is not bool(inverted & 2)) and (
        covers(*source, traveller.source_port) is not bool(inverted & 1)
    )


def _icmp(call: Extension, traveller: Traveller) -> bool:
    """Matches an ICMP error about a connection; no other ICMP packet occurs here."""
    kind, low, high, inverted = _ICMP.unpack_from(call.data)
    if traveller.error is None:
        return False
    name, code = traveller.error
    held = kind == _ANY_TYPE or (kind == _TYPES.get(name) and low <= code <= high)
    return held is not bool(inverted & 1)


def _mark(call: Extension, traveller: Traveller) -> bool:
    value, mask, invert = _MARK.unpack_from(call.data)
    return (traveller.mark & mask == value) is not bool(invert)


_MATCHES: dict[str, Callable[[Extension, Traveller], bool]] = {
    "comment": lambda _call, _traveller: True,
    "conntrack": _conntrack,
    "state": _state,
    "addrtype": _address_type,
    "multiport": _multiport,
    "tcp": _tcp,
    "udp": _udp,
    "mark": _mark,
    "icmp": _icmp,
    "icmp6": _icmp,
}
