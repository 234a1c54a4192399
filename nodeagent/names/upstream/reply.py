"""Reads a packet from a server: is it the answer to our question, and what does it contain? Pure."""

from enum import Enum
from typing import NamedTuple

from nodeagent.model.addresses import Family
from nodeagent.names.upstream.upstream_question import AD
from nodeagent.wire.dns.codes import HEADER_SIZE, QR, RA, TC, Rcode, RecordType
from nodeagent.wire.dns.message import BadMessage, Record, Sections, read_message

MOST_RECORDS = 2048
"""Records in one answer; reading this many takes less than the 50 ms for which the event loop may be held."""

_SMALLEST_SOA = 22
"""Bytes of two root names and five numbers (RFC 1035, 3.3.13)."""


class Reply(NamedTuple):
    """A parsed answer of an upstream server.
    rcode: with the high bits of EDNS. validated, recursive: AD and RA. sections: without the OPT record."""

    rcode: int
    validated: bool
    recursive: bool
    truncated: bool
    edns: bool
    sections: Sections


class RejectReason(Enum):
    """Why a packet is rejected. STRANGER: it does not answer our question. SPELLING: it does, but in other letter case."""

    STRANGER = 0
    SPELLING = 1


def read_reply(packet: bytes, ident: int, question: bytes, *, exact: bool = False) -> Reply | RejectReason:
    """Returns the answer in `packet` to our question, or why it is rejected. exact: the letter case must be unchanged.
    A malformed packet counts as STRANGER: an attacker who guesses answers may send one with the right id."""
    if len(packet) == HEADER_SIZE and _is_bare_failure(packet, ident):
        return Reply(
            rcode=packet[3] & 0x0F,
            validated=False,
            recursive=bool(packet[3] & RA),
            truncated=False,
            edns=False,
            sections=Sections(),
        )
    if not _is_ours(packet, ident, question):
        return RejectReason.STRANGER
    if exact and packet[HEADER_SIZE : HEADER_SIZE + len(question)] != question:
        return RejectReason.SPELLING
    truncated = bool(packet[2] & TC)
    try:
        sections = Sections() if truncated else read_message(packet)[1]
    except BadMessage:
        return RejectReason.STRANGER
    options = [record for record in sections.additional if record.kind == RecordType.OPT]
    if len(options) > 1 or any(map(is_broken, (*sections.answer, *sections.authority, *sections.additional))):
        return RejectReason.STRANGER
    return Reply(
        rcode=packet[3] & 0x0F | (options[0].ttl >> 24 << 4 if options else 0),
        validated=bool(packet[3] & AD),
        recursive=bool(packet[3] & RA),
        truncated=truncated,
        edns=bool(options),
        sections=sections._replace(additional=tuple(r for r in sections.additional if r.kind != RecordType.OPT)),
    )


def _is_ours(packet: bytes, ident: int, question: bytes) -> bool:
    """Returns whether it is an answer of acceptable size with our id and our question, in any letter case."""
    if len(packet) < HEADER_SIZE or packet[:2] != ident.to_bytes(2, "big") or packet[4:6] != b"\0\1":
        return False
    if not packet[2] & QR or packet[2] & 0x78:
        return False
    if sum(packet[at] << 8 | packet[at + 1] for at in (6, 8, 10)) > MOST_RECORDS:
        return False
    returned = packet[HEADER_SIZE : HEADER_SIZE + len(question)]
    return returned[:-4].lower() == question[:-4].lower() and returned[-4:] == question[-4:]


def _is_bare_failure(packet: bytes, ident: int) -> bool:
    """Returns whether it is a header with an error and nothing else, as servers without EDNS send it."""
    return (
        packet[:2] == ident.to_bytes(2, "big")
        and packet[2] & (QR | 0x78 | TC) == QR
        and packet[3] & 0x0F not in (Rcode.NOERROR, Rcode.NXDOMAIN)
        and not any(packet[4:])
    )


def is_broken(record: Record) -> bool:
    """Returns whether the length of its data is wrong for its type; most types are not checked."""
    match record.kind:
        case RecordType.A:
            return len(record.rdata) != Family.IPV4.address_length
        case RecordType.AAAA:
            return len(record.rdata) != Family.IPV6.address_length
        case RecordType.SOA:
            return len(record.rdata) < _SMALLEST_SOA
    return False
