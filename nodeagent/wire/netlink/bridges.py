"""Bridges: whether they apply the rules of IP, which port leads to a host, whether frames are sent back by it, and VLANs; pure.

Forwarding tables are read one address at a time (RTM_GETNEIGH of AF_BRIDGE, Linux 5.0).
"""

import socket
import struct
from typing import NamedTuple

from nodeagent.model.addresses import Family
from nodeagent.wire.netlink.framing import Request, attribute, attributes, reader
from nodeagent.wire.netlink.uapi import rtnetlink as uapi

FOR_ALL_BRIDGES = {Family.IPV4: "bridge-nf-call-iptables", Family.IPV6: "bridge-nf-call-ip6tables"}
"""Settings below net.bridge: whether the rules of IP apply to packets that a bridge carries."""
_LINK_BYTES = 16  # ifinfomsg
_NEIGHBOUR = struct.Struct("=BxxxiHBB")  # ndmsg: family, interface index, state, flags, type
_U32 = struct.Struct("=I")
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_VLAN = struct.Struct("=HH")  # bridge_vlan_info: flags, number
_CALLS = {uapi.IFLA_BR_NF_CALL_IPTABLES: Family.IPV4, uapi.IFLA_BR_NF_CALL_IP6TABLES: Family.IPV6}


class PortVlans(NamedTuple):
    """The VLANs of a port of a bridge, or of the bridge itself as a port. own: the VLAN of frames received without a tag (PVID);
    0: such frames are dropped. untagged: those whose frames are sent without a tag."""

    ifindex: int
    allowed: frozenset[int]
    untagged: frozenset[int]
    own: int


@reader
def filters_vlans(body: memoryview) -> bool:
    """Returns whether a bridge drops frames of VLANs that a port does not allow, from an RTM_NEWLINK message."""
    found = dict(attributes(_info(body).get(uapi.IFLA_INFO_DATA, memoryview(b""))))
    return uapi.IFLA_BR_VLAN_FILTERING in found and bool(found[uapi.IFLA_BR_VLAN_FILTERING][0])


def get_vlans() -> Request:
    """Returns the request for a dump of all bridges and their ports, with their VLANs."""
    head = _LINK.pack(socket.AF_BRIDGE, 0, 0, 0, 0)
    return Request(uapi.RTM_GETLINK, 0, head + attribute(uapi.IFLA_EXT_MASK, _U32.pack(uapi.RTEXT_FILTER_BRVLAN)))


@reader
def read_vlans(body: memoryview) -> PortVlans:
    """Returns the VLANs in one message of the answer to `get_vlans`."""
    spec = dict(attributes(body[_LINK_BYTES:])).get(uapi.IFLA_AF_SPEC, memoryview(b""))
    found = [_VLAN.unpack_from(value) for kind, value in attributes(spec) if kind == uapi.IFLA_BRIDGE_VLAN_INFO]
    own = next((number for flags, number in found if flags & uapi.BRIDGE_VLAN_INFO_PVID), 0)
    untagged = frozenset(number for flags, number in found if flags & uapi.BRIDGE_VLAN_INFO_UNTAGGED)
    return PortVlans(int(_LINK.unpack_from(body)[2]), frozenset(number for _, number in found), untagged, own)


@reader
def families_filtered(body: memoryview) -> frozenset[Family]:
    """Returns the families to whose bridged packets the rules of IP apply by the bridge's own setting, from an RTM_NEWLINK message."""
    found = dict(attributes(_info(body).get(uapi.IFLA_INFO_DATA, memoryview(b""))))
    return frozenset(family for kind, family in _CALLS.items() if kind in found and found[kind][0])


@reader
def sends_back(body: memoryview) -> bool:
    """Returns whether a port of a bridge sends back frames that it received (hairpin mode), from an RTM_NEWLINK message."""
    found = dict(attributes(_info(body).get(uapi.IFLA_INFO_SLAVE_DATA, memoryview(b""))))
    return uapi.IFLA_BRPORT_MODE in found and bool(found[uapi.IFLA_BRPORT_MODE][0])


def look_up_port(hardware_address: bytes, bridge: int) -> Request:
    """Returns the request for the port of a bridge that leads to a hardware address; ENOENT if the bridge has not learned it."""
    head = _NEIGHBOUR.pack(socket.AF_BRIDGE, 0, uapi.NUD_NONE, 0, 0)
    place = attribute(uapi.NDA_LLADDR, hardware_address) + attribute(uapi.NDA_MASTER, _U32.pack(bridge))
    return Request(uapi.RTM_GETNEIGH, 0, head + place)


@reader
def read_port(body: memoryview) -> int:
    """Returns the index of the interface in an RTM_NEWNEIGH message of a forwarding table."""
    return int(_NEIGHBOUR.unpack_from(body)[1])


def _info(body: memoryview) -> dict[int, memoryview]:
    return dict(attributes(dict(attributes(body[_LINK_BYTES:])).get(uapi.IFLA_LINKINFO, memoryview(b""))))
