"""Netlink framing: what is packed is read back, and what is broken ends the reading."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.wire.netlink.framing import attribute, attributes, messages, nested, packed_message, unlike_messages
from nodeagent.wire.netlink.socket import DumpInterruptedError, retry

ATTRIBUTES = st.lists(st.tuples(st.integers(min_value=0, max_value=0x3FFF), st.binary(max_size=40)), max_size=8)


def read(data: bytes) -> list[tuple[int, bytes]]:
    return [(kind, bytes(value)) for kind, value in attributes(memoryview(data))]


@given(ATTRIBUTES)
def test_attributes_are_read_as_packed(wanted: list[tuple[int, bytes]]) -> None:
    packed = b"".join(attribute(kind, value) for kind, value in wanted)

    assert read(packed) == wanted
    assert len(packed) % 4 == 0


@given(ATTRIBUTES)
def test_nested_attributes_lose_their_flag_and_keep_their_contents(wanted: list[tuple[int, bytes]]) -> None:
    [(kind, inner)] = read(nested(7, *(attribute(kind, value) for kind, value in wanted)))

    assert kind == 7
    assert read(inner) == wanted


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x08", id="less than a header"),
        pytest.param(struct.pack("=HH", 3, 1), id="shorter than its header"),
        pytest.param(struct.pack("=HH", 9, 1) + bytes(4), id="longer than the data"),
    ],
)
def test_reading_ends_at_a_broken_attribute(broken: bytes) -> None:
    assert read(attribute(1, b"good") + broken) == [(1, b"good")]


@given(st.binary(max_size=120))
def test_noise_is_no_message_or_one_within_the_datagram(noise: bytes) -> None:
    assert all(len(body) <= len(noise) - 16 for _, _, _, body in messages(memoryview(noise)))


def test_a_datagram_with_several_messages() -> None:
    one = struct.pack("=IHHII", 19, 20, 2, 7, 0) + b"abc\0"
    two = struct.pack("=IHHII", 16, 3, 0, 8, 0)

    found = [(kind, flags, sequence, bytes(body)) for kind, flags, sequence, body in messages(memoryview(one + two))]

    assert found == [(20, 2, 7, b"abc"), (3, 0, 8, b"")]


@given(st.lists(st.tuples(st.sampled_from([3, 24]), st.sampled_from([2, 18]), st.integers(0, 9)), max_size=5))
def test_messages_with_one_header_are_not_all_looked_at(sent: list[tuple[int, int, int]]) -> None:
    datagram = memoryview(b"".join(packed_message(kind, flags, 5, bytes(size)) for kind, flags, size in sent))
    whole, some = [[found[:3] for found in read(datagram)] for read in (messages, unlike_messages)]
    assert set(some) == set(whole)
    alike = len(set(sent)) == 1 and sent[0][2] % 4 == 0
    assert len(some) == (1 if alike else len(whole))


@pytest.mark.parametrize(
    ("interruptions", "succeeds"), [pytest.param(0, True), pytest.param(2, True), pytest.param(3, False)]
)
@pytest.mark.parametrize(
    "error",
    [
        DumpInterruptedError(errno.EINTR, "changed"),
        *(OSError(number, "") for number in (errno.EBUSY, errno.ENOBUFS, errno.ENOMEM, errno.EMSGSIZE)),
    ],
    ids=repr,
)
def test_a_request_to_a_busy_kernel_is_repeated_a_few_times(interruptions: int, succeeds: bool, error: OSError) -> None:
    remaining = [error] * interruptions

    def dump() -> str:
        if remaining:
            raise remaining.pop()
        return "complete"

    if succeeds:
        assert retry(dump, attempts=3) == "complete"
    else:
        with pytest.raises(type(error)):
            retry(dump, attempts=3)


@pytest.mark.parametrize("error", [TimeoutError(), OSError(errno.ENOENT, ""), OSError(errno.EPERM, "")], ids=repr)
def test_a_refusal_for_another_reason_is_final(error: OSError) -> None:
    asked = 0

    def refuse() -> None:
        nonlocal asked
        asked += 1
        raise error

    with pytest.raises(type(error)):
        retry(refuse)
    assert asked == 1
