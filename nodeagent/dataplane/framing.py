"""Netlink framing as bytes: messages and attributes (RFC 3549, linux/netlink.h). Pure.

Everything is in host byte order except what a subsystem says otherwise.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_DUMP_INTR = 0x10
NLM_F_DUMP = 0x300
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_APPEND = 0x800
NLM_F_ACK_TLVS = 0x200

NLMSG_ERROR = 2
NLMSG_DONE = 3

HEADER = struct.Struct("=IHHII")
"""Length, type, flags, sequence number, port (0: the kernel)."""
NLA_F_NESTED = 0x8000
_NLA_TYPE_MASK = 0x3FFF
_ATTRIBUTE = struct.Struct("=HH")


class Received(NamedTuple):
    """One message of a datagram; `body` is what follows the netlink header."""

    kind: int
    flags: int
    seq: int
    body: memoryview


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    return _ATTRIBUTE.pack(len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | NLA_F_NESTED, b"".join(attributes))


def attributes(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(type without flag bits, value) of each attribute; stops quietly at the first malformed one."""
    offset = 0
    while offset + 4 <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < 4 or offset + length > len(data):
            return
        yield kind & _NLA_TYPE_MASK, data[offset + 4 : offset + length]
        offset += length + 3 & ~3


def messages(datagram: memoryview) -> Iterator[Received]:
    """Each message in a datagram."""
    offset = 0
    while offset + HEADER.size <= len(datagram):
        length, kind, flags, seq, _ = HEADER.unpack_from(datagram, offset)
        if length < HEADER.size or offset + length > len(datagram):
            return
        yield Received(kind, flags, seq, datagram[offset + HEADER.size : offset + length])
        offset += length + 3 & ~3
