"""INIT and INIT ACK as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.worlds.sctp import INIT, INIT_ACK, Chunk, checksum, decode, encode

PORTS = st.integers(0, 0xFFFF)
TAGS = st.integers(0, 0xFFFFFFFF)
CHUNKS = st.one_of(
    st.builds(Chunk, PORTS, PORTS, st.just(0), st.just(INIT), TAGS),
    st.builds(Chunk, PORTS, PORTS, TAGS, st.just(INIT_ACK), TAGS, st.binary(min_size=1, max_size=200)),
)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        pytest.param(b"123456789", 0xE3069283, id="the check value of CRC-32C"),
        pytest.param(bytes(32), 0x8A9136AA, id="32 zeros, RFC 3720 B.4"),
        pytest.param(b"\xff" * 32, 0x62A8AB43, id="32 ones, RFC 3720 B.4"),
        pytest.param(bytes(range(32)), 0x46DD794E, id="ascending, RFC 3720 B.4"),
    ],
)
def test_the_checksum_is_crc32c(data: bytes, value: int) -> None:
    assert checksum(data) == value


@given(CHUNKS)
def test_encoded_chunks_can_be_decoded(chunk: Chunk) -> None:
    packet = encode(chunk)

    assert decode(packet) == chunk
    assert len(packet) % 4 == 0


@given(CHUNKS, st.data())
def test_a_flipped_bit_is_noticed(chunk: Chunk, data: st.DataObject) -> None:
    packet = bytearray(encode(chunk))
    packet[data.draw(st.integers(0, len(packet) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    assert decode(bytes(packet)) is None


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_not(data: bytes) -> None:
    assert decode(data) is None or len(data) >= 32
