"""Rtnetlink messages for links, addresses and routes in the table `local`: packs and reads them, nothing else.

Only what the service interface and the node's addresses need (linux/rtnetlink.h, if_link.h, if_addr.h); why not a
library is in docs/decisions/0020-rtnetlink.md.
"""

import socket
import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from nodeagent.model.addresses import Family, family_of, pack_address, unpack_address
from nodeagent.wire.netlink.framing import Request, attribute, attributes, nested, reader, string, text_of
from nodeagent.wire.netlink.uapi import rtnetlink as uapi
from nodeagent.wire.netlink.uapi.netlink import NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE

_IPV4_BYTES = Family.IPV4.address_length
_IPV4_BITS = 8 * _IPV4_BYTES
_IPV6_BITS = 8 * Family.IPV6.address_length
_IPV6_FLAGS = uapi.IFA_F_NODAD | uapi.IFA_F_NOPREFIXROUTE
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, interface index
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags
_NEXTHOP = struct.Struct("=HBBi")  # rtnexthop: length, flags, hops, interface index
_ADDRESS_LENGTHS = frozenset(family.address_length for family in Family)
_VIA_FAMILY_BYTES = 2  # before the address of struct rtvia
_U32 = struct.Struct("=I")
PROTOCOL_OVER_LO = 110
"""Assigned to no other program (iproute2, etc/iproute2/rt_protos): the routes over ``lo`` are recognised as ours only by it."""
LOOPBACK_INDEX = 1
"""The index of ``lo`` in every network namespace (include/net/flow.h, LOOPBACK_IFINDEX)."""


class Link(NamedTuple):
    """An interface.

    kind: ``bridge``, ``dummy``, …; empty for hardware.
    alias: free text that its creator may have set. master: the index of the bridge whose port it is; 0: not a port.
    resolves: it uses ARP and neighbour discovery (no IFF_NOARP).
    generates_addresses: it gets an IPv6 link-local address automatically.
    carrier: the lower layer is up (IFF_LOWER_UP).
    mtu: the longest packet that it carries, in bytes; 0 if the kernel does not report it.
    below: the index of the interface that carries its packets, of a VLAN for example; for a veth, of its peer. 0: none in this namespace.
    hardware: its hardware address; empty if it has none.
    """

    ifindex: int
    name: str
    kind: str
    up: bool
    resolves: bool
    generates_addresses: bool
    alias: str
    master: int
    carrier: bool = True
    mtu: int = 0
    below: int = 0
    hardware: bytes = b""


class InterfaceAddress(NamedTuple):
    """An address on an interface, canonical text. as_ours: it has exactly the form of `add_address`."""

    ifindex: int
    address: str
    prefix_length: int
    as_ours: bool


def get_link(name: str) -> Request:
    """Returns the request for one interface."""
    return Request(uapi.RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + string(uapi.IFLA_IFNAME, name))


def get_links() -> Request:
    """Returns the request for a dump of all interfaces."""
    return Request(uapi.RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0))


def get_ports(index: int) -> Request:
    """Returns the request for a dump of the ports of an interface (filtered by the kernel from 4.3 on, else all interfaces)."""
    return Request(uapi.RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + attribute(uapi.IFLA_MASTER, _U32.pack(index)))


def create_link(name: str, kind: str) -> Request:
    """Returns the request to create an interface, down. A bridge has no multicast snooping, so that it never sends a query."""
    info = [attribute(uapi.IFLA_INFO_KIND, kind.encode())]
    if kind == "bridge":
        info.append(nested(uapi.IFLA_INFO_DATA, attribute(uapi.IFLA_BR_MCAST_SNOOPING, b"\0")))
    body = _LINK.pack(0, 0, 0, 0, 0) + string(uapi.IFLA_IFNAME, name) + nested(uapi.IFLA_LINKINFO, *info)
    return Request(uapi.RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body)


def set_alias(index: int, alias: str) -> Request:
    """`ip link set … alias …`. The kernel does not accept an alias when an interface is created."""
    return Request(uapi.RTM_NEWLINK, 0, _LINK.pack(0, 0, index, 0, 0) + attribute(uapi.IFLA_IFALIAS, alias.encode()))


def stop_address_generation(index: int) -> Request:
    """Returns the request to add no IPv6 link-local address when the interface goes up. Fails without IPv6."""
    mode = nested(socket.AF_INET6, attribute(uapi.IFLA_INET6_ADDR_GEN_MODE, bytes([uapi.IN6_ADDR_GEN_MODE_NONE])))
    return Request(uapi.RTM_NEWLINK, 0, _LINK.pack(0, 0, index, 0, 0) + nested(uapi.IFLA_AF_SPEC, mode))


def set_link_up(index: int) -> Request:
    """`ip link set … up arp off`.

    No address behind the interface is ever resolved, and with resolution each IPv6 address joins a multicast group:
    adding 4,096 takes 5 s, against 0.3 s without (kernel 6.18). A dummy is like this from the start.
    """
    flags = uapi.IFF_UP | uapi.IFF_NOARP
    return Request(uapi.RTM_NEWLINK, 0, _LINK.pack(0, 0, index, flags, flags))


def delete_link(index: int) -> Request:
    """Returns the request to delete an interface together with its addresses and routes."""
    return Request(uapi.RTM_DELLINK, 0, _LINK.pack(0, 0, index, 0, 0))


def get_addresses(index: int = 0) -> Request:
    """Returns the request for a dump of the addresses of both families, of one interface if the kernel filters (>= 4.20), else of all."""
    return Request(uapi.RTM_GETADDR, 0, _ADDRESS.pack(0, 0, 0, 0, index))


def add_address(address: str, index: int) -> Request:
    """Returns the request to add a host address that is never chosen as the source of traffic to elsewhere.

    IPv4: scope host, which source selection for other destinations skips. IPv6: deprecated (preferred lifetime
    zero, RFC 6724 rule 3), no duplicate address detection, no prefix route.
    """
    return Request(uapi.RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, _address(address, index))


def delete_address(address: str, index: int, prefix_length: int | None = None) -> Request:
    """Returns the request to delete an address; `prefix_length` None: a host address."""
    packed = pack_address(address)
    length = len(packed) * 8 if prefix_length is None else prefix_length
    body = _ADDRESS.pack(family_of(address).socket_family, length, 0, 0, index) + attribute(uapi.IFA_LOCAL, packed)
    return Request(uapi.RTM_DELADDR, 0, body)


def get_routes(family: Family, kind: int = 0) -> Request:
    """Returns the request for a dump of the routes of all tables; with a kind (RTN_UNICAST, …) only those of it (filtered by the kernel
    from 4.20 on, else everything)."""
    return Request(uapi.RTM_GETROUTE, 0, _ROUTE.pack(family.socket_family, 0, 0, 0, 0, 0, 0, kind, 0))


def get_route_to(address: str) -> Request:
    """Returns the request for the route of a packet of this node to the address; an error if no route leads there."""
    packed = pack_address(address)
    head = _ROUTE.pack(family_of(address).socket_family, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0)
    return Request(uapi.RTM_GETROUTE, 0, head + attribute(uapi.RTA_DST, packed))


def get_local_routes(family: Family, index: int | None = None) -> Request:
    """Returns the request for a dump of the static local routes over one interface or all (filtered by the kernel from 4.20 on, else
    everything)."""
    return _get_local_routes(family, uapi.RTPROT_STATIC, index)


def get_range_routes(index: int) -> Request:
    """Returns the request for a dump of the static IPv6 routes to ranges, in the table `local`, over one interface (filtered as
    `get_local_routes`)."""
    return _get_local_routes(Family.IPV6, uapi.RTPROT_STATIC, index, uapi.RTN_UNICAST)


def add_local_route(address: str, index: int, source: str = "") -> Request:
    """`ip route append local ADDRESS dev … table local proto static src SOURCE`: local without being on the interface. A range (text with
    a prefix length) gets a route of type `unicast`. The kernel accepts only an address of the node as source.

    Appended, so that it is added even if another interface has the address too (kube-ipvs0, say); twice on the same interface is EEXIST.
    """
    return Request(uapi.RTM_NEWROUTE, NLM_F_CREATE | NLM_F_APPEND, _route(address, index, source=source))


def replace_ipv6_route(address: str, index: int, source: str) -> Request:
    """Returns the request to replace an existing route: it gets another source, or none.

    Of several routes to the same destination the kernel replaces the first with this metric, that of routes which programs add
    (net/ipv6/ip6_fib.c, fib6_add_rt2node).
    """
    return Request(uapi.RTM_NEWROUTE, NLM_F_REPLACE, _route(address, index, source=source))


def delete_local_route(address: str, index: int) -> Request:
    """Undoes `add_local_route`."""
    return Request(uapi.RTM_DELROUTE, 0, _route(address, index))


def get_routes_over_lo() -> Request:
    """Returns the request for a dump of our local IPv4 routes over ``lo`` (filtered by the kernel from 4.20 on, else everything)."""
    return _get_local_routes(Family.IPV4, PROTOCOL_OVER_LO, LOOPBACK_INDEX)


def _get_local_routes(family: Family, protocol: int, index: int | None, kind: int = uapi.RTN_LOCAL) -> Request:
    body = _ROUTE.pack(family.socket_family, 0, 0, 0, 0, protocol, 0, kind, 0)
    body += attribute(uapi.RTA_TABLE, _U32.pack(uapi.RT_TABLE_LOCAL))
    return Request(uapi.RTM_GETROUTE, 0, body + (b"" if index is None else attribute(uapi.RTA_OIF, _U32.pack(index))))


def add_route_over_lo(address: str, source: str = "") -> Request:
    """`ip route prepend local ADDRESS dev lo table local proto 110 src SOURCE`: before all other routes to the address.

    The kernel prepends what is neither exclusive nor appended (net/ipv4/fib_trie.c, fib_table_insert); twice is EEXIST.
    """
    return Request(uapi.RTM_NEWROUTE, NLM_F_CREATE, _route(address, LOOPBACK_INDEX, PROTOCOL_OVER_LO, source))


def delete_route_over_lo(address: str, source: str = "") -> Request:
    """Undoes `add_route_over_lo`. Without a source it deletes the first of these routes, whatever its source is."""
    return Request(uapi.RTM_DELROUTE, 0, _route(address, LOOPBACK_INDEX, PROTOCOL_OVER_LO, source))


@reader
def read_link(body: memoryview) -> Link:
    """Reads an RTM_NEWLINK message."""
    _, _, index, flags, _ = _LINK.unpack_from(body)
    name = kind = alias = ""
    generates = False
    master = mtu = below = 0
    elsewhere, hardware = False, b""
    for attribute_kind, value in attributes(body[_LINK.size :]):
        if attribute_kind == uapi.IFLA_IFNAME:
            name = text_of(value)
        elif attribute_kind == uapi.IFLA_ADDRESS:
            hardware = bytes(value)
        elif attribute_kind == uapi.IFLA_LINKINFO:
            kind = next((text_of(inner) for k, inner in attributes(value) if k == uapi.IFLA_INFO_KIND), "")
        elif attribute_kind == uapi.IFLA_AF_SPEC:
            generates = _generates_addresses(value)
        elif attribute_kind == uapi.IFLA_IFALIAS:
            alias = text_of(value)
        elif attribute_kind == uapi.IFLA_MTU:
            mtu = _U32.unpack_from(value)[0]
        elif attribute_kind == uapi.IFLA_MASTER:
            master = _U32.unpack_from(value)[0]
        elif attribute_kind == uapi.IFLA_LINK:
            below = _U32.unpack_from(value)[0]
        elif attribute_kind == uapi.IFLA_LINK_NETNSID:
            elsewhere = True
    up, resolves, carrier = bool(flags & uapi.IFF_UP), not flags & uapi.IFF_NOARP, bool(flags & uapi.IFF_LOWER_UP)
    return Link(
        index, name, kind, up, resolves, generates, alias, master, carrier, mtu, 0 if elsewhere else below, hardware
    )


@reader
def read_address(body: memoryview) -> InterfaceAddress | None:
    """Reads an RTM_NEWADDR or RTM_DELADDR message; returns None for an address family other than the two."""
    family, prefix_length, _, scope, index = _ADDRESS.unpack_from(body)
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    found = {kind: bytes(value) for kind, value in attributes(body[_ADDRESS.size :])}
    packed = found.get(uapi.IFA_LOCAL) or found.get(uapi.IFA_ADDRESS)
    if packed is None:
        return None
    if family == socket.AF_INET:
        as_ours = prefix_length == _IPV4_BITS and scope == uapi.RT_SCOPE_HOST
    else:
        as_ours = (
            prefix_length == _IPV6_BITS
            and _U32.unpack(found.get(uapi.IFA_FLAGS, bytes(4)))[0] & _IPV6_FLAGS == _IPV6_FLAGS
        )
    return InterfaceAddress(index, unpack_address(packed), prefix_length, as_ours)


@reader
def reaches_others(body: memoryview) -> bool:
    """Returns whether the address of an RTM_NEWADDR message is used for traffic to elsewhere. Addresses that a proxy adds are not:
    IPv4 ones of scope host, and IPv6 ones that are deprecated and alone (/128).

    Other deprecated addresses are still reached until their lifetime ends.
    """
    family, prefix_length, flags, scope, _ = _ADDRESS.unpack_from(body)
    alone = family == socket.AF_INET6 and prefix_length == _IPV6_BITS
    return scope != uapi.RT_SCOPE_HOST and not (alone and flags & uapi.IFA_F_DEPRECATED)


@reader
def may_be_source(body: memoryview) -> bool:
    """Returns whether the address of an RTM_NEWADDR message may be the source of packets to elsewhere, and is usable already."""
    _, _, flags, scope, _ = _ADDRESS.unpack_from(body)
    return scope < uapi.RT_SCOPE_LINK and not flags & (uapi.IFA_F_TENTATIVE | uapi.IFA_F_DADFAILED)


@reader
def is_default_route(body: memoryview) -> bool:
    """Returns whether a route is a default route. Cheap, and False for nearly all routes of a node that learns many."""
    return bool(body[1] == 0 and body[7] == uapi.RTN_UNICAST and not _ROUTE.unpack_from(body)[8] & uapi.RTM_F_CLONED)


@reader
def leads_here(body: memoryview) -> bool:
    """Returns whether a route is one to this node itself."""
    return bool(_ROUTE.unpack_from(body)[7] == uapi.RTN_LOCAL)


@reader
def read_host_route(body: memoryview) -> tuple[str, int] | None:
    """Returns the one address that a route of any creator delivers to this host, and the index of its interface (0: several);
    None for any other route."""
    family, length, _, _, _, _, _, kind, _ = _ROUTE.unpack_from(body)
    if kind != uapi.RTN_LOCAL or family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    found = dict(attributes(body[_ROUTE.size :]))
    packed, interface = bytes(found.get(uapi.RTA_DST, b"")), int.from_bytes(found.get(uapi.RTA_OIF, b""), sys.byteorder)
    return (unpack_address(packed), interface) if packed and len(packed) * 8 == length else None


@reader
def gateways_of(body: memoryview) -> tuple[bytes, ...]:
    """Returns the packed addresses of the gateways in an RTM_NEWROUTE message: its own one, one of another family, or several."""
    _, _, _, _, _, _, _, kind, flags = _ROUTE.unpack_from(body)
    if kind != uapi.RTN_UNICAST or flags & uapi.RTM_F_CLONED:
        return ()
    return tuple(hop for hop in _hops(body[_ROUTE.size :]) if len(hop) in _ADDRESS_LENGTHS)


def _hops(message: memoryview, *, of_many: bool = False) -> Iterator[bytes]:
    for kind, value in attributes(message):
        if kind == uapi.RTA_GATEWAY:
            yield bytes(value)
        elif kind == uapi.RTA_VIA:
            yield bytes(value[_VIA_FAMILY_BYTES:])
        elif kind == uapi.RTA_MULTIPATH and not of_many:
            rest = value
            while len(rest) >= _NEXTHOP.size and (length := _NEXTHOP.unpack_from(rest)[0]) >= _NEXTHOP.size:
                yield from _hops(rest[_NEXTHOP.size : length], of_many=True)
                rest = rest[(length + 3) & ~3 :]


def _generates_addresses(af_spec: memoryview) -> bool:
    for family, settings in attributes(af_spec):
        if family == socket.AF_INET6:
            for kind, value in attributes(settings):
                if kind == uapi.IFLA_INET6_ADDR_GEN_MODE:
                    return value[0] != uapi.IN6_ADDR_GEN_MODE_NONE
    return False


def _address(address: str, index: int) -> bytes:
    packed = pack_address(address)
    if len(packed) == _IPV4_BYTES:
        head = _ADDRESS.pack(socket.AF_INET, _IPV4_BITS, 0, uapi.RT_SCOPE_HOST, index)
        return head + attribute(uapi.IFA_LOCAL, packed) + attribute(uapi.IFA_ADDRESS, packed)
    head = _ADDRESS.pack(socket.AF_INET6, _IPV6_BITS, 0, uapi.RT_SCOPE_UNIVERSE, index)
    lifetimes = attribute(uapi.IFA_CACHEINFO, struct.pack("=IIII", 0, uapi.INFINITY_LIFE_TIME, 0, 0))
    flags = attribute(uapi.IFA_FLAGS, _U32.pack(_IPV6_FLAGS))
    return head + attribute(uapi.IFA_LOCAL, packed) + attribute(uapi.IFA_ADDRESS, packed) + lifetimes + flags


def _route(destination: str, index: int, protocol: int = uapi.RTPROT_STATIC, source: str = "") -> bytes:
    address, _, length = destination.partition("/")
    packed = pack_address(address)
    scope = uapi.RT_SCOPE_HOST if len(packed) == _IPV4_BYTES else uapi.RT_SCOPE_UNIVERSE
    family = family_of(address).socket_family
    bits, kind = (int(length), uapi.RTN_UNICAST) if length else (len(packed) * 8, uapi.RTN_LOCAL)
    head = _ROUTE.pack(family, bits, 0, 0, uapi.RT_TABLE_LOCAL, protocol, scope, kind, 0)
    return head + attribute(uapi.RTA_DST, packed) + _route_end(index, source)


@lru_cache(maxsize=16)
def _route_end(index: int, source: str) -> bytes:
    """Returns the part that thousands of routes have in common."""
    chosen = attribute(uapi.RTA_PREFSRC, pack_address(source)) if source else b""
    return attribute(uapi.RTA_OIF, _U32.pack(index)) + chosen
