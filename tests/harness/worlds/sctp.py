"""Just enough SCTP (RFC 9260) to test its NAT on kernels without it: an INIT and the INIT ACK that answers it.

The INIT ACK's state cookie may have any contents: it carries the answer. Pure.
"""

from msgspec import Struct

INIT = 1
INIT_ACK = 2
STATE_COOKIE = 7
SHORTEST = 32
"""Bytes of an INIT without parameters, common header included."""
POLYNOMIAL = 0x82F63B78


class Chunk(Struct, frozen=True):
    """The first chunk of a packet, and its ports. `cookie` is empty for an INIT."""

    source_port: int
    destination_port: int
    verification_tag: int
    kind: int
    initiate_tag: int
    cookie: bytes = b""


def crc32c_table() -> tuple[int, ...]:
    """Returns the byte-wise table of CRC32c (RFC 9260, appendix A), reflected."""
    rows = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


CRC32C = crc32c_table()


def checksum(packet: bytes) -> int:
    """Returns the CRC32c of a packet whose checksum field is zero."""
    value = 0xFFFFFFFF
    for byte in packet:
        value = (value >> 8) ^ CRC32C[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def encode(chunk: Chunk) -> bytes:
    """Returns the whole packet with its checksum (stored little-endian, as in the RFC's appendix)."""
    parameter = b""
    if chunk.kind == INIT_ACK:
        length = 4 + len(chunk.cookie)
        parameter = STATE_COOKIE.to_bytes(2, "big") + length.to_bytes(2, "big") + chunk.cookie
    fixed = chunk.initiate_tag.to_bytes(4, "big") + (65536).to_bytes(4, "big") + b"\0\1\0\1" + b"\0\0\0\1"
    body = bytes((chunk.kind, 0)) + (4 + len(fixed) + len(parameter)).to_bytes(2, "big") + fixed + parameter
    body += b"\0" * (-len(body) % 4)
    ports = chunk.source_port.to_bytes(2, "big") + chunk.destination_port.to_bytes(2, "big")
    head = ports + chunk.verification_tag.to_bytes(4, "big")
    return head + checksum(head + b"\0\0\0\0" + body).to_bytes(4, "little") + body


def decode(packet: bytes) -> Chunk | None:
    """Returns the packet's INIT or INIT ACK; None for anything else, a short packet or a wrong checksum."""
    if len(packet) < SHORTEST or packet[12] not in (INIT, INIT_ACK):
        return None
    if checksum(packet[:8] + b"\0\0\0\0" + packet[12:]) != int.from_bytes(packet[8:12], "little"):
        return None
    end = 12 + int.from_bytes(packet[14:16], "big")
    cookie = b""
    if packet[12] == INIT_ACK and packet[32:34] == STATE_COOKIE.to_bytes(2, "big"):
        cookie = packet[36 : min(end, 32 + int.from_bytes(packet[34:36], "big"))]
    return Chunk(
        int.from_bytes(packet[0:2], "big"),
        int.from_bytes(packet[2:4], "big"),
        int.from_bytes(packet[4:8], "big"),
        packet[12],
        int.from_bytes(packet[16:20], "big"),
        cookie,
    )
