"""Reads whether a neighbour answers (RTM_GETNEIGH of one address, Linux 5.0), and makes the kernel probe it; pure."""

import struct

from nodeagent.model.addresses import family_of, pack_address
from nodeagent.wire.netlink.framing import Request, attribute, attributes, reader
from nodeagent.wire.netlink.uapi import rtnetlink as uapi
from nodeagent.wire.netlink.uapi.netlink import NLM_F_CREATE

_NEIGHBOUR = struct.Struct("=BxxxiHBB")  # ndmsg: family, interface index, state, flags, type


def look_up_neighbour(address: str, interface: int) -> Request:
    """Returns the request for the state of a neighbour; ENOENT if the kernel has no entry for it."""
    return Request(uapi.RTM_GETNEIGH, 0, _neighbour(address, interface, 0))


def use_neighbour(address: str, interface: int) -> Request:
    """Returns the request that makes the kernel probe the neighbour now, as for a packet to it (NTF_USE)."""
    return Request(uapi.RTM_NEWNEIGH, NLM_F_CREATE, _neighbour(address, interface, uapi.NTF_USE))


@reader
def read_state(body: memoryview) -> int:
    """Returns the neighbour's state, NUD_…, from an RTM_NEWNEIGH message."""
    return int(_NEIGHBOUR.unpack_from(body)[2])


@reader
def read_hardware_address(body: memoryview) -> bytes:
    """Returns the hardware address of the neighbour from an RTM_NEWNEIGH message; empty if it is not known."""
    return bytes(dict(attributes(body[_NEIGHBOUR.size :])).get(uapi.NDA_LLADDR, b""))


def _neighbour(address: str, interface: int, flags: int) -> bytes:
    head = _NEIGHBOUR.pack(family_of(address).socket_family, interface, uapi.NUD_NONE, flags, 0)
    return head + attribute(uapi.NDA_DST, pack_address(address))
