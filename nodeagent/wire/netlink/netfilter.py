"""What the messages of all netfilter subsystems share (linux/netfilter/nfnetlink.h). Pure.

Integers inside attributes are big endian; register contents and user data are native.
"""

import struct

from nodeagent.model.addresses import Family
from nodeagent.wire.netlink.framing import attribute
from nodeagent.wire.netlink.uapi.nfnetlink import NFPROTO_IPV4, NFPROTO_IPV6

_GENMSG = struct.Struct(">BBH")
_U32 = struct.Struct("=HH4s")
GENMSG_LENGTH = _GENMSG.size


def nfproto(family: Family) -> int:
    """Returns the family's number in netfilter."""
    return NFPROTO_IPV4 if family is Family.IPV4 else NFPROTO_IPV6


def message_type(subsystem: int, kind: int) -> int:
    """Returns the type of a subsystem's message."""
    return subsystem << 8 | kind


def genmsg(family: int, resource: int = 0) -> bytes:
    """Returns struct nfgenmsg, which comes before the attributes: family, version 0, resource."""
    return _GENMSG.pack(family, 0, resource)


def u8(kind: int, value: int) -> bytes:
    """Returns a one-byte attribute."""
    return attribute(kind, bytes((value,)))


def u32(kind: int, value: int) -> bytes:
    """Returns a big-endian 32-bit attribute (negative values as two's complement)."""
    return _U32.pack(8, kind, (value & 0xFFFFFFFF).to_bytes(4, "big"))


def u64(kind: int, value: int) -> bytes:
    """Returns a big-endian 64-bit attribute."""
    return attribute(kind, value.to_bytes(8, "big"))


def number(value: memoryview | bytes) -> int:
    """Returns an unsigned big-endian integer of any length."""
    return int.from_bytes(value, "big")
