"""Protobuf's wire format, with the examples of its specification (protobuf.dev, Encoding)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.wire.protobuf import Malformed, as_bytes, as_int, as_signed, bytes_field, number_field, read_fields


def test_the_examples_of_the_specification() -> None:
    assert number_field(1, 150) == bytes.fromhex("089601")
    assert bytes_field(2, b"testing") == bytes.fromhex("120774657374696e67")
    assert number_field(1, -2) == bytes.fromhex("08feffffffffffffffff01")
    assert list(read_fields(bytes.fromhex("089601120774657374696e67"))) == [(1, 150), (2, b"testing")]


def test_fields_of_fixed_size_are_bytes() -> None:
    assert list(read_fields(b"\x0d1234\x1112345678")) == [(1, b"1234"), (2, b"12345678")]


FIELDS = st.tuples(st.integers(1, 2**29 - 1), st.integers(0, 2**64 - 1) | st.binary(max_size=300))


@given(st.lists(FIELDS))
def test_written_fields_can_be_read(fields: list[tuple[int, int | bytes]]) -> None:
    parts = [number_field(at, held) if isinstance(held, int) else bytes_field(at, held) for at, held in fields]
    assert list(read_fields(b"".join(parts))) == fields


@given(st.integers(-(2**63), 2**63 - 1))
def test_negative_numbers_are_read(value: int) -> None:
    ((_, read),) = read_fields(number_field(1, value))
    assert as_signed(read) == value


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("08", "message is cut short"),
        ("0896", "message is cut short"),
        ("1207746573", "message is cut short"),
        ("0d313233", "message is cut short"),
        ("0b", "unknown wire type 3"),
        ("08ffffffffffffffffffff01", "number too long"),
    ],
)
def test_bytes_that_are_not_a_message_are_refused(message: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        list(read_fields(bytes.fromhex(message)))


def test_a_field_of_another_type_is_refused() -> None:
    with pytest.raises(Malformed, match="bytes where a number belongs"):
        as_int(b"")
    with pytest.raises(Malformed, match="a number where bytes belong"):
        as_bytes(0)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    try:
        list(read_fields(message))
    except Malformed:
        return
