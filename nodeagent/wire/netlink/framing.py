"""Netlink framing as bytes: messages and attributes (RFC 3549, linux/netlink.h). Pure.

Everything is in host byte order unless a subsystem says otherwise.
"""

import errno
import struct
from collections.abc import Callable, Iterator
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

from nodeagent.wire.netlink.uapi.netlink import NLA_F_NESTED, NLA_TYPE_MASK

HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence number, port (0: the kernel)."""
ATTRIBUTE = struct.Struct("=HH")
"""struct nlattr: length, type."""


P = ParamSpec("P")
T = TypeVar("T")


class MalformedMessageError(OSError):
    """A message lacks a required part, or has too few bytes for it."""

    def __init__(self, reader: str) -> None:
        super().__init__(errno.EBADMSG, f"malformed message ({reader})")


def reader(read: Callable[P, T]) -> Callable[P, T]:
    """Decorates a parser: turns its other errors into MalformedMessageError."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (LookupError, ArithmeticError, ValueError, struct.error) as error:
            raise MalformedMessageError(read.__name__) from error

    return reading


class Request(NamedTuple):
    """One message to the kernel: its type, its NLM_F_* flags (REQUEST is implied) and what follows the header."""

    type: int
    flags: int
    body: bytes


class Received(NamedTuple):
    """One message of a datagram; `body` is what follows the netlink header."""

    type: int
    flags: int
    seq: int
    body: memoryview


def packed_message(kind: int, flags: int, seq: int, body: bytes) -> bytes:
    """Returns a whole message, padded to four bytes."""
    size = HEADER.size + len(body)
    return HEADER.pack(size, kind, flags, seq, 0) + body + b"\0" * (-size % 4)


def attribute(kind: int, value: bytes) -> bytes:
    """Returns one attribute, padded to four bytes."""
    return ATTRIBUTE.pack(len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Returns an attribute that holds attributes."""
    return attribute(kind | NLA_F_NESTED, b"".join(attributes))


def string(kind: int, text: str) -> bytes:
    """Returns a NUL-terminated text attribute."""
    return attribute(kind, text.encode() + b"\0")


def attributes(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yields (type without flag bits, value) of each attribute; stops without an error at the first malformed one."""
    offset = 0
    while offset + 4 <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, offset)
        if length < ATTRIBUTE.size or offset + length > len(data):
            return
        yield kind & NLA_TYPE_MASK, data[offset + 4 : offset + length]
        offset += length + 3 & ~3


def attribute_map(data: memoryview) -> dict[int, memoryview]:
    """Returns attributes by type; of repeated ones the last. Stops at the first malformed one, as `attributes` does."""
    found: dict[int, memoryview] = {}
    offset, end = 0, len(data)
    while offset + 4 <= end:
        length, kind = ATTRIBUTE.unpack_from(data, offset)
        if length < ATTRIBUTE.size or offset + length > end:
            break
        found[kind & NLA_TYPE_MASK] = data[offset + 4 : offset + length]
        offset += length + 3 & ~3
    return found


def text_of(payload: memoryview) -> str:
    """Returns the text of a NUL-terminated attribute."""
    return bytes(payload).rstrip(b"\0").decode(errors="replace")


def unlike_messages(datagram: memoryview) -> Iterator[Received]:
    """Yields each message in a datagram, but only the first if all have the same header, as in the middle of a dump."""
    length = HEADER.unpack_from(datagram)[0] if len(datagram) >= HEADER.size else 0
    alike = length >= HEADER.size and len(datagram) % length == 0 and length % 4 == 0
    if alike and len(set(struct.iter_unpack(f"{HEADER.size}s{length - HEADER.size}x", datagram))) == 1:
        datagram = datagram[:length]
    yield from messages(datagram)


def messages(datagram: memoryview) -> list[Received]:
    """Returns each message in a datagram; stops without an error at the first malformed one."""
    found: list[Received] = []
    offset, end = 0, len(datagram)
    while offset + HEADER.size <= end:
        length, kind, flags, seq, _ = HEADER.unpack_from(datagram, offset)
        if length < HEADER.size or offset + length > end:
            break
        found.append(Received(kind, flags, seq, datagram[offset + HEADER.size : offset + length]))
        offset += length + 3 & ~3
    return found
