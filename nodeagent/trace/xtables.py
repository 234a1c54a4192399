"""Extensions of iptables, which nft lists by name only, out of the bytes that iptables gave the kernel (pure).

Layouts: linux/netfilter/xt_*.h and x_tables.h. What is not here cannot be told.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from nodeagent.dataplane.nft.packet import TCP, UDP
from nodeagent.model.addresses import unpack_address
from nodeagent.netlink.nf_tables.rule_reading import Extension
from nodeagent.trace.matching import Unknown
from nodeagent.trace.traveller import Traveller

PASSING = frozenset({"LOG", "NFLOG", "TRACE", "CHECKSUM", "TCPMSS", "TCPOPTSTRIP", "CLASSIFY", "DSCP", "TOS"})
"""Targets that decide nothing about where a packet goes."""

_STATE = 0x1
_STATUS = 0x8
_CONNTRACK_FLAGS = 146
_NAT_BITS = {1 << 7: 1 << 5, 1 << 6: 1 << 4}
"""XT_CONNTRACK_STATE_DNAT, …_SNAT → IPS_DST_NAT, IPS_SRC_NAT."""
_STATES = {2: 1 << 1, 4: 1 << 2, 8: 1 << 3, 64: 1 << 8}
"""Our bit of a state → XT_CONNTRACK_STATE_…; of IP_CT_NEW it is the third, of the untracked the eighth."""
_ADDRTYPE = struct.Struct("=HHI")
_LOCAL, _UNICAST = 1 << 2, 1 << 1
_INVERT_SOURCE, _INVERT_DESTINATION = 1, 2
_MULTIPORT = struct.Struct("=BB15H15BB")
_TCP = struct.Struct("=4H4B")
_UDP = struct.Struct("=4HB")
_MARK = struct.Struct("=IIB")
_MARK_TARGET = struct.Struct("=II")
_NAT_RANGE = struct.Struct("=I16s16s2s2s")
_OLD_NAT_RANGE = struct.Struct("=II4s4s2s2s")
_MAPS_IPS, _MAPS_PORTS = 1, 2
_LAST_PORT = 65535


def matches(call: Extension, traveller: Traveller) -> bool:
    """Whether a match of an extension holds. Raises Unknown."""
    known = _MATCHES.get(call.name)
    if known is None:
        raise Unknown(f"xt match {call.name}")
    try:
        return known(call, traveller)
    except struct.error as error:
        raise Unknown(f"xt match {call.name} revision {call.revision}") from error


class Translation(NamedTuple):
    """A new destination; None where it stays."""

    address: str | None
    port: int | None


def translation(call: Extension, traveller: Traveller) -> Translation:
    """Where a DNAT or REDIRECT leads; the first of several. Raises Unknown."""
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
    """The packet's mark after a MARK target. Raises Unknown."""
    try:
        value, mask = _MARK_TARGET.unpack_from(call.data)
    except struct.error as error:
        raise Unknown("xt target MARK") from error
    return int(mark & ~mask ^ value)


def untracks(call: Extension) -> bool:
    """Whether a CT or NOTRACK target leaves the packet out of connection tracking (XT_CT_NOTRACK)."""
    return call.name == "NOTRACK" or bool(call.data[:1] and call.data[0] & 1)


def _conntrack(call: Extension, traveller: Traveller) -> bool:
    asked, inverted, states, statuses = struct.unpack_from("=4H", call.data, _CONNTRACK_FLAGS)
    if asked & ~(_STATE | _STATUS):
        raise Unknown("xt match conntrack")
    held = True
    if asked & _STATE:
        mine = _STATES.get(traveller.state, 0)
        for named, bit in _NAT_BITS.items():
            mine |= named if traveller.machine.status & bit else 0
        held = bool(states & mine) is not bool(inverted & _STATE)
    if asked & _STATUS:
        held = held and bool(statuses & traveller.machine.status) is not bool(inverted & _STATUS)
    return held


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
    if flags == 0:
        raise Unknown("the client's port")
    held, at = False, 0
    while at < count:
        last = ports[at + 1] if ranges[at] and at + 1 < count else ports[at]
        held = held or ports[at] <= traveller.machine.port <= last
        at += 2 if ranges[at] else 1
    return held is not bool(invert)


def _tcp(call: Extension, traveller: Traveller) -> bool:
    first, last, low, high, option, mask, wanted, inverted = _TCP.unpack_from(call.data)
    if traveller.packet.protocol != TCP:
        return False
    if (first, last) != (0, _LAST_PORT) or option:
        raise Unknown("the client's port")
    flags = (traveller.packet.tcp_flags & mask == wanted) is not bool(inverted & 4)
    return flags and (low <= traveller.machine.port <= high) is not bool(inverted & 2)


def _udp(call: Extension, traveller: Traveller) -> bool:
    first, last, low, high, inverted = _UDP.unpack_from(call.data)
    if traveller.packet.protocol != UDP:
        return False
    if (first, last) != (0, _LAST_PORT):
        raise Unknown("the client's port")
    return (low <= traveller.machine.port <= high) is not bool(inverted & 2)


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
}
