"""Netlink attributes and messages as bytes (linux/netlink.h, linux/netfilter/nfnetlink.h).

Integers inside attributes are big endian for nf_tables; register contents and user data are native.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

NESTED = 0x8000
TYPE_MASK = 0x3FFF

NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_APPEND = 0x800
NLM_F_DUMP = 0x300

NLMSG_ERROR = 0x2
NLMSG_DONE = 0x3

_HEADER = struct.Struct("=IHHII")
_GENMSG = struct.Struct(">BBH")
_ATTR = struct.Struct("=HH")
_U32 = struct.Struct("=HH4s")
HEADER_LENGTH = 16
GENMSG_LENGTH = 4


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute: length, type, payload, padding to four bytes."""
    length = len(payload) + 4
    return _ATTR.pack(length, kind) + payload + b"\0" * (-length % 4)


def nest(kind: int, *children: bytes) -> bytes:
    """An attribute whose payload is attributes."""
    return attribute(kind | NESTED, b"".join(children))


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
    """A whole netlink message of the netfilter subsystem."""
    length = HEADER_LENGTH + GENMSG_LENGTH + len(body)
    return _HEADER.pack(length, kind, flags, seq, 0) + _GENMSG.pack(family, 0, res_id) + body


class Received(NamedTuple):
    """One message as read from a socket; `body` is what follows the netlink header."""

    kind: int
    flags: int
    seq: int
    body: memoryview


def split_messages(data: memoryview) -> Iterator[Received]:
    """The messages in one datagram."""
    offset = 0
    while offset + HEADER_LENGTH <= len(data):
        length, kind, flags, seq, _ = _HEADER.unpack_from(data, offset)
        if length < HEADER_LENGTH:
            return
        yield Received(kind, flags, seq, data[offset + HEADER_LENGTH : offset + length])
        offset += (length + 3) & ~3


def attributes(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(type without flag bits, payload) of each attribute in `data`."""
    offset = 0
    end = len(data)
    while offset + 4 <= end:
        length, kind = _ATTR.unpack_from(data, offset)
        if length < 4:
            return
        yield kind & TYPE_MASK, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def attribute_map(data: memoryview) -> dict[int, memoryview]:
    """Attributes by type; of repeated ones the last."""
    return dict(attributes(data))


def text_of(payload: memoryview) -> str:
    """The text of a NUL-terminated attribute."""
    return bytes(payload).rstrip(b"\0").decode(errors="replace")
