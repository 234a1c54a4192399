"""Rtnetlink messages for links, addresses and local routes: packing and unpacking, nothing else.

Only what the service interface and the node's addresses need (linux/rtnetlink.h, if_link.h, if_addr.h); why not a
library is in docs/decisions/0020-rtnetlink.md.
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from nodeagent.model.addresses import Family, family_of, pack_address, unpack_address
from nodeagent.netlink.framing import Request, attribute, attributes, nested, string, text_of
from nodeagent.netlink.uapi.netlink import NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL
from nodeagent.netlink.uapi.rtnetlink import (
    IFA_ADDRESS,
    IFA_CACHEINFO,
    IFA_F_DEPRECATED,
    IFA_F_NODAD,
    IFA_F_NOPREFIXROUTE,
    IFA_FLAGS,
    IFA_LOCAL,
    IFF_NOARP,
    IFF_UP,
    IFLA_AF_SPEC,
    IFLA_BR_MCAST_SNOOPING,
    IFLA_IFALIAS,
    IFLA_IFNAME,
    IFLA_INET6_ADDR_GEN_MODE,
    IFLA_INFO_DATA,
    IFLA_INFO_KIND,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IN6_ADDR_GEN_MODE_NONE,
    INFINITY_LIFE_TIME,
    RT_SCOPE_HOST,
    RT_SCOPE_UNIVERSE,
    RT_TABLE_LOCAL,
    RTA_DST,
    RTA_GATEWAY,
    RTA_MULTIPATH,
    RTA_OIF,
    RTA_TABLE,
    RTA_VIA,
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_DELROUTE,
    RTM_F_CLONED,
    RTM_GETADDR,
    RTM_GETLINK,
    RTM_GETROUTE,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWROUTE,
    RTN_LOCAL,
    RTN_UNICAST,
    RTPROT_STATIC,
)

_IPV6_FLAGS = IFA_F_NODAD | IFA_F_NOPREFIXROUTE
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, interface index
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags
_NEXTHOP = struct.Struct("=HBBi")  # rtnexthop: length, flags, hops, interface index
_VIA_FAMILY_BYTES = 2  # before the address of struct rtvia
_U32 = struct.Struct("=I")


class Link(NamedTuple):
    """An interface.

    kind: ``bridge``, ``dummy``, …; empty for hardware.
    alias: free text that whoever made it may have set. master: the index of what it is a port of; 0 for none.
    resolves: it uses ARP and neighbour discovery (no IFF_NOARP).
    generates_addresses: it gets an IPv6 link-local address by itself.
    """

    ifindex: int
    name: str
    kind: str
    up: bool
    resolves: bool
    generates_addresses: bool
    alias: str
    master: int


class InterfaceAddress(NamedTuple):
    """An address on an interface, canonical text. as_ours: it has exactly the form that `add_address` gives."""

    ifindex: int
    address: str
    prefix_length: int
    as_ours: bool


def get_link(name: str) -> Request:
    """Asks for one interface."""
    return Request(RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + string(IFLA_IFNAME, name))


def get_links() -> Request:
    """A dump of all interfaces."""
    return Request(RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0))


def get_ports(index: int) -> Request:
    """A dump of the interfaces that are ports of one (filtered by the kernel from 4.3 on, else of all)."""
    return Request(RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + attribute(IFLA_MASTER, _U32.pack(index)))


def create_link(name: str, kind: str) -> Request:
    """A new interface, down. A bridge is made without multicast snooping, so that it never sends a query."""
    info = [attribute(IFLA_INFO_KIND, kind.encode())]
    if kind == "bridge":
        info.append(nested(IFLA_INFO_DATA, attribute(IFLA_BR_MCAST_SNOOPING, b"\0")))
    body = _LINK.pack(0, 0, 0, 0, 0) + string(IFLA_IFNAME, name) + nested(IFLA_LINKINFO, *info)
    return Request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body)


def set_alias(index: int, alias: str) -> Request:
    """`ip link set … alias …`. The kernel does not take one when an interface is made."""
    return Request(RTM_NEWLINK, 0, _LINK.pack(0, 0, index, 0, 0) + attribute(IFLA_IFALIAS, alias.encode()))


def stop_address_generation(index: int) -> Request:
    """No IPv6 link-local address appears by itself when the interface goes up. Fails where IPv6 is missing."""
    mode = nested(socket.AF_INET6, attribute(IFLA_INET6_ADDR_GEN_MODE, bytes([IN6_ADDR_GEN_MODE_NONE])))
    return Request(RTM_NEWLINK, 0, _LINK.pack(0, 0, index, 0, 0) + nested(IFLA_AF_SPEC, mode))


def set_link_up(index: int) -> Request:
    """`ip link set … up arp off`.

    Nothing behind the interface is ever resolved, and with resolution each IPv6 address joins a multicast group:
    adding 4,096 takes 5 s, against 0.3 s without (kernel 6.18). A dummy is like this from the start.
    """
    flags = IFF_UP | IFF_NOARP
    return Request(RTM_NEWLINK, 0, _LINK.pack(0, 0, index, flags, flags))


def delete_link(index: int) -> Request:
    """Deletes an interface together with its addresses and routes."""
    return Request(RTM_DELLINK, 0, _LINK.pack(0, 0, index, 0, 0))


def get_addresses(index: int = 0) -> Request:
    """A dump of the addresses of both families, of one interface where the kernel filters (>= 4.20), else of all."""
    return Request(RTM_GETADDR, 0, _ADDRESS.pack(0, 0, 0, 0, index))


def add_address(address: str, index: int) -> Request:
    """Adds a host address that is never chosen as the source of traffic to elsewhere.

    IPv4: scope host, which source selection for other destinations passes over. IPv6: deprecated (preferred lifetime
    zero, RFC 6724 rule 3), no duplicate address detection, no prefix route.
    """
    return Request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, _address(address, index))


def delete_address(address: str, index: int, prefix_length: int | None = None) -> Request:
    """Removes an address; `prefix_length` None: a host address."""
    packed = pack_address(address)
    length = len(packed) * 8 if prefix_length is None else prefix_length
    body = _ADDRESS.pack(family_of(address).socket_family, length, 0, 0, index) + attribute(IFA_LOCAL, packed)
    return Request(RTM_DELADDR, 0, body)


def get_routes(family: Family) -> Request:
    """A dump of the routes of all tables."""
    return Request(RTM_GETROUTE, 0, _ROUTE.pack(family.socket_family, 0, 0, 0, 0, 0, 0, 0, 0))


def get_local_routes(family: Family, index: int) -> Request:
    """A dump of the static local routes over one interface (filtered by the kernel from 4.20 on, else everything)."""
    body = _ROUTE.pack(family.socket_family, 0, 0, 0, 0, RTPROT_STATIC, 0, RTN_LOCAL, 0)
    return Request(
        RTM_GETROUTE,
        0,
        body + attribute(RTA_TABLE, _U32.pack(RT_TABLE_LOCAL)) + attribute(RTA_OIF, _U32.pack(index)),
    )


def add_local_route(address: str, index: int) -> Request:
    """`ip route append local ADDRESS dev … table local proto static`: local without being on the interface.

    Appended, so that it comes into being although another interface has the address too (kube-ipvs0, say); twice on
    the same interface is EEXIST.
    """
    return Request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_APPEND, _route(address, index))


def delete_local_route(address: str, index: int) -> Request:
    """Undoes `add_local_route`."""
    return Request(RTM_DELROUTE, 0, _route(address, index))


def read_link(body: memoryview) -> Link:
    """What an RTM_NEWLINK message says."""
    _, _, index, flags, _ = _LINK.unpack_from(body)
    name = kind = alias = ""
    generates = False
    master = 0
    for attribute_kind, value in attributes(body[_LINK.size :]):
        if attribute_kind == IFLA_IFNAME:
            name = text_of(value)
        elif attribute_kind == IFLA_LINKINFO:
            kind = next((text_of(inner) for k, inner in attributes(value) if k == IFLA_INFO_KIND), "")
        elif attribute_kind == IFLA_AF_SPEC:
            generates = _generates_addresses(value)
        elif attribute_kind == IFLA_IFALIAS:
            alias = text_of(value)
        elif attribute_kind == IFLA_MASTER:
            master = _U32.unpack_from(value)[0]
    return Link(index, name, kind, bool(flags & IFF_UP), not flags & IFF_NOARP, generates, alias, master)


def read_address(body: memoryview) -> InterfaceAddress | None:
    """What an RTM_NEWADDR or RTM_DELADDR message says; None for an address family other than the two."""
    family, prefix_length, _, scope, index = _ADDRESS.unpack_from(body)
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    found = {kind: bytes(value) for kind, value in attributes(body[_ADDRESS.size :])}
    packed = found.get(IFA_LOCAL) or found.get(IFA_ADDRESS)
    if packed is None:
        return None
    if family == socket.AF_INET:
        as_ours = prefix_length == 32 and scope == RT_SCOPE_HOST
    else:
        as_ours = prefix_length == 128 and _U32.unpack(found.get(IFA_FLAGS, bytes(4)))[0] & _IPV6_FLAGS == _IPV6_FLAGS
    return InterfaceAddress(index, unpack_address(packed), prefix_length, as_ours)


def reaches_others(body: memoryview) -> bool:
    """Whether the address of an RTM_NEWADDR message is used for traffic to elsewhere: not of scope host, nor deprecated."""
    _, _, flags, scope, _ = _ADDRESS.unpack_from(body)
    return scope != RT_SCOPE_HOST and not flags & IFA_F_DEPRECATED


def may_be_local_route(body: memoryview) -> bool:
    """Whether `read_local_route` is worth its time: said of nearly no route of a node that learns many."""
    return bool(body[5] == RTPROT_STATIC and body[7] == RTN_LOCAL)


def read_local_route(body: memoryview, index: int) -> str | None:
    """The address of one of our routes over interface `index`; None for any other route."""
    family, length, _, _, _, protocol, _, kind, _ = _ROUTE.unpack_from(body)
    if kind != RTN_LOCAL or protocol != RTPROT_STATIC:
        return None
    found = {attribute_kind: bytes(value) for attribute_kind, value in attributes(body[_ROUTE.size :])}
    packed = found.get(RTA_DST, b"")
    expected = (_U32.pack(RT_TABLE_LOCAL), _U32.pack(index))
    if (found.get(RTA_TABLE), found.get(RTA_OIF)) != expected or len(packed) * 8 != length:
        return None
    return unpack_address(packed) if family in {socket.AF_INET, socket.AF_INET6} else None


def gateways_of(body: memoryview) -> Iterator[bytes]:
    """The packed addresses that an RTM_NEWROUTE message sends packets through: its own, via another family, or several."""
    _, _, _, _, _, _, _, kind, flags = _ROUTE.unpack_from(body)
    if kind == RTN_UNICAST and not flags & RTM_F_CLONED:
        yield from _hops(body[_ROUTE.size :])


def _hops(message: memoryview) -> Iterator[bytes]:
    for kind, value in attributes(message):
        if kind == RTA_GATEWAY:
            yield bytes(value)
        elif kind == RTA_VIA:
            yield bytes(value[_VIA_FAMILY_BYTES:])
        elif kind == RTA_MULTIPATH:
            rest = value
            while len(rest) >= _NEXTHOP.size and (length := _NEXTHOP.unpack_from(rest)[0]) >= _NEXTHOP.size:
                yield from _hops(rest[_NEXTHOP.size : length])
                rest = rest[(length + 3) & ~3 :]


def _generates_addresses(af_spec: memoryview) -> bool:
    for family, settings in attributes(af_spec):
        if family == socket.AF_INET6:
            for kind, value in attributes(settings):
                if kind == IFLA_INET6_ADDR_GEN_MODE:
                    return value[0] != IN6_ADDR_GEN_MODE_NONE
    return False


def _address(address: str, index: int) -> bytes:
    packed = pack_address(address)
    if len(packed) == 4:
        head = _ADDRESS.pack(socket.AF_INET, 32, 0, RT_SCOPE_HOST, index)
        return head + attribute(IFA_LOCAL, packed) + attribute(IFA_ADDRESS, packed)
    head = _ADDRESS.pack(socket.AF_INET6, 128, 0, RT_SCOPE_UNIVERSE, index)
    lifetimes = attribute(IFA_CACHEINFO, struct.pack("=IIII", 0, INFINITY_LIFE_TIME, 0, 0))
    flags = attribute(IFA_FLAGS, _U32.pack(_IPV6_FLAGS))
    return head + attribute(IFA_LOCAL, packed) + attribute(IFA_ADDRESS, packed) + lifetimes + flags


def _route(address: str, index: int) -> bytes:
    packed = pack_address(address)
    scope = RT_SCOPE_HOST if len(packed) == 4 else RT_SCOPE_UNIVERSE
    family = family_of(address).socket_family
    head = _ROUTE.pack(family, len(packed) * 8, 0, 0, RT_TABLE_LOCAL, RTPROT_STATIC, scope, RTN_LOCAL, 0)
    return head + attribute(RTA_DST, packed) + attribute(RTA_OIF, _U32.pack(index))
