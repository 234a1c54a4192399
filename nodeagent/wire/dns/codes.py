"""Numbers of the DNS, from the registries of IANA."""

from enum import IntEnum


class RecordType(IntEnum):
    """Types of records that are treated specially."""

    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    MX = 15
    TXT = 16
    AAAA = 28
    SRV = 33
    DNAME = 39
    OPT = 41
    IXFR = 251
    AXFR = 252
    ANY = 255


class Rcode(IntEnum):
    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5
    BADVERS = 16


CLASS_IN = 1
HEADER_SIZE = 12
SMALLEST_UDP_LIMIT = 512
"""What every client accepts by UDP without EDNS, and with an EDNS size below it (RFC 6891, 6.2.3)."""
LARGEST_UDP_LIMIT = 4096
"""Bytes of the longest answer by UDP, whatever size the client announces: from 65,508 on no datagram can hold it, and each
further fragment is one more to lose. Longer answers have TC, and the client asks by TCP."""
TCP_LIMIT = 65535
HEADER_RCODE = 0x0F
"""Rcodes above it need EDNS (RFC 6891, 6.1.3)."""
_LARGEST_TYPE = 0xFFFF

QR = 0x80
TC = 0x02
RD = 0x01
RA = 0x80
CD = 0x10
"""Bits of the third (QR to RD) and the fourth byte (RA, CD) of a header."""


def type_text(kind: int) -> str:
    """Returns ``A``, or ``TYPE65280`` for a type that has no name here (RFC 3597)."""
    try:
        return RecordType(kind).name
    except ValueError:
        return f"TYPE{kind}"


def type_number(text: str) -> int:
    """Returns the number of a type by its name. Raises ValueError."""
    word = text.upper()
    if word in RecordType.__members__:
        return RecordType[word]
    if word.startswith("TYPE") and word[4:].isascii() and word[4:].isdigit() and int(word[4:]) <= _LARGEST_TYPE:
        return int(word[4:])
    raise ValueError(f"unknown type {text!r}")
