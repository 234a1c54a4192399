"""Rtnetlink messages for links, addresses and local routes: packing and unpacking, nothing else.

Only what the service interface and the node's addresses need (linux/rtnetlink.h, if_link.h, if_addr.h); why not a
library is in docs/decisions/0020-rtnetlink.md.
"""

import socket
import struct
from typing import NamedTuple

from nodeagent.dataplane.framing import NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, attribute, attributes, nested
from nodeagent.dataplane.netlink import Request
from nodeagent.model.addresses import Family, family_of, pack_address, unpack_address

RTM_NEWLINK = 16
RTM_DELLINK = 17
RTM_GETLINK = 18
RTM_NEWADDR = 20
RTM_DELADDR = 21
RTM_GETADDR = 22
RTM_NEWROUTE = 24
RTM_DELROUTE = 25
RTM_GETROUTE = 26

_IFLA_IFNAME = 3
_IFLA_MASTER = 10
_IFLA_LINKINFO = 18
_IFLA_IFALIAS = 20
_IFLA_AF_SPEC = 26
_IFLA_INFO_KIND = 1
_IFLA_INFO_DATA = 2
_IFLA_BR_MCAST_SNOOPING = 23
_IFLA_INET6_ADDR_GEN_MODE = 8
_ADDR_GEN_MODE_NONE = 1
_IFF_UP = 0x1
_IFF_NOARP = 0x80

_IFA_ADDRESS = 1
_IFA_LOCAL = 2
_IFA_CACHEINFO = 6
_IFA_FLAGS = 8
_IFA_F_NODAD = 0x02
_IFA_F_NOPREFIXROUTE = 0x200
_IPV6_FLAGS = _IFA_F_NODAD | _IFA_F_NOPREFIXROUTE
_FOREVER = 0xFFFFFFFF

_RTA_DST = 1
_RTA_OIF = 4
_RTA_TABLE = 15
_RT_TABLE_LOCAL = 255
_RTPROT_STATIC = 4
_RTN_LOCAL = 2
_RT_SCOPE_UNIVERSE = 0
_RT_SCOPE_HOST = 254

_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_ADDRESS = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, interface index
_ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst_len, src_len, tos, table, protocol, scope, type, flags
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
    return Request(RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + _name(name))


def get_ports(index: int) -> Request:
    """A dump of the interfaces that are ports of one (filtered by the kernel from 4.3 on, else of all)."""
    return Request(RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + attribute(_IFLA_MASTER, _U32.pack(index)))


def create_link(name: str, kind: str) -> Request:
    """A new interface, down. A bridge is made without multicast snooping, so that it never sends a query."""
    info = [attribute(_IFLA_INFO_KIND, kind.encode())]
    if kind == "bridge":
        info.append(nested(_IFLA_INFO_DATA, attribute(_IFLA_BR_MCAST_SNOOPING, b"\0")))
    body = _LINK.pack(0, 0, 0, 0, 0) + _name(name) + nested(_IFLA_LINKINFO, *info)
    return Request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body)


def set_alias(index: int, alias: str) -> Request:
    """`ip link set … alias …`. The kernel does not take one when an interface is made."""
    return Request(RTM_NEWLINK, 0, _LINK.pack(0, 0, index, 0, 0) + attribute(_IFLA_IFALIAS, alias.encode()))


def stop_address_generation(index: int) -> Request:
    """No IPv6 link-local address appears by itself when the interface goes up. Fails where IPv6 is missing."""
    mode = nested(socket.AF_INET6, attribute(_IFLA_INET6_ADDR_GEN_MODE, bytes([_ADDR_GEN_MODE_NONE])))
    return Request(RTM_NEWLINK, 0, _LINK.pack(0, 0, index, 0, 0) + nested(_IFLA_AF_SPEC, mode))


def set_link_up(index: int) -> Request:
    """`ip link set … up arp off`.

    Nothing behind the interface is ever resolved, and with resolution each IPv6 address joins a multicast group:
    adding 4,096 takes 5 s, against 0.3 s without (kernel 6.18). A dummy is like this from the start.
    """
    flags = _IFF_UP | _IFF_NOARP
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
    body = _ADDRESS.pack(family_of(address).socket_family, length, 0, 0, index) + attribute(_IFA_LOCAL, packed)
    return Request(RTM_DELADDR, 0, body)


def get_local_routes(family: Family, index: int) -> Request:
    """A dump of the static local routes over one interface (filtered by the kernel from 4.20 on, else everything)."""
    body = _ROUTE.pack(family.socket_family, 0, 0, 0, 0, _RTPROT_STATIC, 0, _RTN_LOCAL, 0)
    return Request(
        RTM_GETROUTE,
        0,
        body + attribute(_RTA_TABLE, _U32.pack(_RT_TABLE_LOCAL)) + attribute(_RTA_OIF, _U32.pack(index)),
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
        if attribute_kind == _IFLA_IFNAME:
            name = _text(value)
        elif attribute_kind == _IFLA_LINKINFO:
            kind = next((_text(inner) for k, inner in attributes(value) if k == _IFLA_INFO_KIND), "")
        elif attribute_kind == _IFLA_AF_SPEC:
            generates = _generates_addresses(value)
        elif attribute_kind == _IFLA_IFALIAS:
            alias = _text(value)
        elif attribute_kind == _IFLA_MASTER:
            master = _U32.unpack_from(value)[0]
    return Link(index, name, kind, bool(flags & _IFF_UP), not flags & _IFF_NOARP, generates, alias, master)


def read_address(body: memoryview) -> InterfaceAddress | None:
    """What an RTM_NEWADDR or RTM_DELADDR message says; None for an address family other than the two."""
    family, prefix_length, _, scope, index = _ADDRESS.unpack_from(body)
    if family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    found = {kind: bytes(value) for kind, value in attributes(body[_ADDRESS.size :])}
    packed = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS)
    if packed is None:
        return None
    if family == socket.AF_INET:
        as_ours = prefix_length == 32 and scope == _RT_SCOPE_HOST
    else:
        as_ours = prefix_length == 128 and _U32.unpack(found.get(_IFA_FLAGS, bytes(4)))[0] & _IPV6_FLAGS == _IPV6_FLAGS
    return InterfaceAddress(index, unpack_address(packed), prefix_length, as_ours)


def may_be_local_route(body: memoryview) -> bool:
    """Whether `read_local_route` is worth its time: said of nearly no route of a node that learns many."""
    return bool(body[5] == _RTPROT_STATIC and body[7] == _RTN_LOCAL)


def read_local_route(body: memoryview, index: int) -> str | None:
    """The address of one of our routes over interface `index`; None for any other route."""
    family, length, _, _, _, protocol, _, kind, _ = _ROUTE.unpack_from(body)
    if kind != _RTN_LOCAL or protocol != _RTPROT_STATIC:
        return None
    found = {attribute_kind: bytes(value) for attribute_kind, value in attributes(body[_ROUTE.size :])}
    packed = found.get(_RTA_DST, b"")
    expected = (_U32.pack(_RT_TABLE_LOCAL), _U32.pack(index))
    if (found.get(_RTA_TABLE), found.get(_RTA_OIF)) != expected or len(packed) * 8 != length:
        return None
    return unpack_address(packed) if family in {socket.AF_INET, socket.AF_INET6} else None


def _name(name: str) -> bytes:
    return attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _text(value: memoryview) -> str:
    return bytes(value).rstrip(b"\0").decode(errors="replace")


def _generates_addresses(af_spec: memoryview) -> bool:
    for family, settings in attributes(af_spec):
        if family == socket.AF_INET6:
            for kind, value in attributes(settings):
                if kind == _IFLA_INET6_ADDR_GEN_MODE:
                    return value[0] != _ADDR_GEN_MODE_NONE
    return False


def _address(address: str, index: int) -> bytes:
    packed = pack_address(address)
    if len(packed) == 4:
        head = _ADDRESS.pack(socket.AF_INET, 32, 0, _RT_SCOPE_HOST, index)
        return head + attribute(_IFA_LOCAL, packed) + attribute(_IFA_ADDRESS, packed)
    head = _ADDRESS.pack(socket.AF_INET6, 128, 0, _RT_SCOPE_UNIVERSE, index)
    lifetimes = attribute(_IFA_CACHEINFO, struct.pack("=IIII", 0, _FOREVER, 0, 0))
    flags = attribute(_IFA_FLAGS, _U32.pack(_IPV6_FLAGS))
    return head + attribute(_IFA_LOCAL, packed) + attribute(_IFA_ADDRESS, packed) + lifetimes + flags


def _route(address: str, index: int) -> bytes:
    packed = pack_address(address)
    scope = _RT_SCOPE_HOST if len(packed) == 4 else _RT_SCOPE_UNIVERSE
    family = family_of(address).socket_family
    head = _ROUTE.pack(family, len(packed) * 8, 0, 0, _RT_TABLE_LOCAL, _RTPROT_STATIC, scope, _RTN_LOCAL, 0)
    return head + attribute(_RTA_DST, packed) + attribute(_RTA_OIF, _U32.pack(index))
