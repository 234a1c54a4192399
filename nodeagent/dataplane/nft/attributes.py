"""Attributes and messages of the netfilter subsystem as bytes (linux/netfilter/nfnetlink.h). Pure.

Integers inside attributes are big endian for nf_tables; register contents and user data are native.
"""

import struct

from nodeagent.dataplane.framing import HEADER, attribute, attributes

GENMSG_LENGTH = 4
_GENMSG = struct.Struct(">BBH")
_U32 = struct.Struct("=HH4s")


def string(kind: int, text: str) -> bytes:
    """A NUL-terminated text attribute."""
    return attribute(kind, text.encode() + b"\0")


def u8(kind: int, value: int) -> bytes:
    """A one-byte attribute."""
    return attribute(kind, bytes((value,)))


def u32(kind: int, value: int) -> bytes:
    """A big-endian 32-bit attribute (negative values as two's complement)."""
    return _U32.pack(8, kind, (value & 0xFFFFFFFF).to_bytes(4, "big"))


def u64(kind: int, value: int) -> bytes:
    """A big-endian 64-bit attribute."""
    return attribute(kind, value.to_bytes(8, "big"))


def message(kind: int, flags: int, seq: int, family: int, res_id: int, body: bytes) -> bytes:
    """A whole netlink message: header, struct nfgenmsg (family, version 0, resource), attributes."""
    length = HEADER.size + GENMSG_LENGTH + len(body)
    return HEADER.pack(length, kind, flags, seq, 0) + _GENMSG.pack(family, 0, res_id) + body


def attribute_map(data: memoryview) -> dict[int, memoryview]:
    """Attributes by type; of repeated ones the last."""
    return dict(attributes(data))


def text_of(payload: memoryview) -> str:
    """The text of a NUL-terminated attribute."""
    return bytes(payload).rstrip(b"\0").decode(errors="replace")
