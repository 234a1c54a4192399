"""Protobuf's wire format: packs and reads fields of a message. What the fields mean is decided elsewhere. Pure."""

from collections.abc import Iterator
from typing import Final

_VARINT, _BYTES = 0, 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
_WORD: Final = 1 << 64
_MORE: Final = 0x80
"""The bit of a byte that is set if the number continues."""
_LONGEST_SHIFT: Final = 63


class Malformed(ValueError):
    """Bytes that are not a protobuf message, or not the expected one."""


def _varint(value: int) -> bytes:
    """Returns a number in as few bytes as it needs; a negative one as two's complement of 64 bits."""
    value %= _WORD
    out = bytearray()
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(field: int, value: int) -> bytes:
    """Returns a field that holds a number, which may be 0."""
    return _varint(field << 3 | _VARINT) + _varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    """Returns a field that holds text, bytes or a message, which may be empty."""
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (field number, value) of one message, in the order sent. Raises Malformed."""
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
    """Returns the number that a field holds. Raises Malformed."""
    if isinstance(value, bytes):
        raise Malformed("bytes where a number belongs")
    return value


def as_signed(value: int | bytes) -> int:
    """Returns the number, which may be negative. Raises Malformed."""
    found = as_int(value)
    return found - _WORD if found >= _WORD >> 1 else found


def as_bytes(value: int | bytes) -> bytes:
    """Returns the bytes that a field holds. Raises Malformed."""
    if isinstance(value, int):
        raise Malformed("a number where bytes belong")
    return value
