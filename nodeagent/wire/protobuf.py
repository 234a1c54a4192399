"""Protobuf's wire format: fields of a message to bytes and back. What the fields mean is decided elsewhere. Pure."""

from collections.abc import Iterator
from typing import Final

_VARINT, _BYTES = 0, 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
_WORD: Final = 1 << 64
_MORE: Final = 0x80
"""The bit of a byte that says that the number goes on."""
_LONGEST_SHIFT: Final = 63


class Malformed(ValueError):
    """Bytes that are no protobuf message, or not the one that was expected."""


def _varint(value: int) -> bytes:
    """A number in as few bytes as it needs; of a negative one the two's complement of 64 bits."""
    value %= _WORD
    out = bytearray()
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(field: int, value: int) -> bytes:
    """A field that holds a number, also 0."""
    return _varint(field << 3 | _VARINT) + _varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    """A field that holds text, bytes or a message, also an empty one."""
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of one message, as sent. Raises Malformed."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(message, at)
        elif kind in _FIXED_BYTES:
            size = _FIXED_BYTES[kind]
        else:
            raise Malformed(f"unknown wire type {kind}")
        if at + size > end:
            raise Malformed("message is cut short")
        yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < _MORE:
                return value % _WORD, at
            shift += 7
            if shift > _LONGEST_SHIFT:
                raise Malformed("number too long")
    except IndexError:
        raise Malformed("message is cut short") from None


def as_int(value: int | bytes) -> int:
    """The number that a field holds. Raises Malformed."""
    if isinstance(value, bytes):
        raise Malformed("bytes where a number belongs")
    return value


def as_signed(value: int | bytes) -> int:
    """The number, which may be negative. Raises Malformed."""
    found = as_int(value)
    return found - _WORD if found >= _WORD >> 1 else found


def as_bytes(value: int | bytes) -> bytes:
    """The bytes that a field holds. Raises Malformed."""
    if isinstance(value, int):
        raise Malformed("a number where bytes belong")
    return value
