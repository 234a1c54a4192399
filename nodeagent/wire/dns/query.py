"""Parses queries. For a packet that is not a valid query it also makes the reply.

Decided here: which packets get no reply, and which get FORMERR, NOTIMP, BADVERS or REFUSED.
"""

from typing import NamedTuple

from nodeagent.wire.dns.codes import (
    CLASS_IN,
    HEADER_SIZE,
    LARGEST_UDP_LIMIT,
    QR,
    RD,
    SMALLEST_UDP_LIMIT,
    Rcode,
    RecordType,
)
from nodeagent.wire.dns.domain_names import LONGEST_LABEL, LONGEST_NAME, BadName, read

_MOST_ADDITIONAL = 2
"""Records: OPT and a signature."""


class Edns(NamedTuple):
    """The OPT record of a query. size: the bytes that the client accepts by UDP."""

    size: int
    dnssec_ok: bool
    version: int = 0

    def record(self, *, rcode: int = 0) -> bytes:
        """Returns the OPT record of an answer: size and DO as the client sent them, no options, the high bits of `rcode`."""
        return (
            b"\0\0\x29"
            + self.size.to_bytes(2, "big")
            + bytes((rcode >> 4, 0))
            + (b"\x80\0" if self.dnssec_ok else b"\0\0")
            + b"\0\0"
        )


class Query(NamedTuple):
    """One question of class IN.

    packet: as the client sent it. name: in the client's letter case. question: name, type and class as bytes.
    """

    packet: bytes
    name: bytes
    kind: int
    question: bytes
    edns: Edns | None

    @property
    def udp_limit(self) -> int:
        """The maximal size of an answer by UDP, in bytes."""
        return udp_limit(self.edns.size) if self.edns is not None else SMALLEST_UDP_LIMIT

    @property
    def opt(self) -> bytes:
        """The OPT record of its answer; empty without EDNS."""
        return self.edns.record() if self.edns is not None else b""


class NotAnswered(Exception):
    """The packet is not a query that can be answered. reply: what the client gets, None for no reply."""

    def __init__(self, reply: bytes | None) -> None:
        super().__init__()
        self.reply = reply


def read_query(packet: bytes) -> Query:
    """Returns the query in a packet. Raises NotAnswered and no other error, whatever the bytes are."""
    if len(packet) < HEADER_SIZE or packet[2] & QR:
        raise NotAnswered(None)
    if packet[2] & 0x78:
        raise NotAnswered(header_only(packet, Rcode.NOTIMP))
    questions, answers, authorities, additional = (
        packet[4] << 8 | packet[5],
        packet[6] << 8 | packet[7],
        packet[8] << 8 | packet[9],
        packet[10] << 8 | packet[11],
    )
    if questions != 1 or answers > 1 or authorities > 1 or additional > _MOST_ADDITIONAL:
        raise NotAnswered(header_only(packet, Rcode.FORMERR))
    if len(packet) == HEADER_SIZE:
        raise NotAnswered(header_only(packet, Rcode.SERVFAIL))
    end = _end_of_question(packet)
    question = packet[HEADER_SIZE:end]
    edns = None
    if answers or authorities or additional:
        try:
            edns = _find_opt(packet, end, answers + authorities, additional)
        except BadName:
            raise NotAnswered(with_question(packet, question, Rcode.FORMERR)) from None
    if edns is not None and edns.version:
        refusal = with_question(packet, question, 0)
        opt = Edns(0, dnssec_ok=False).record(rcode=Rcode.BADVERS)
        raise NotAnswered(refusal[:11] + b"\1" + refusal[12:] + opt)
    kind = packet[end - 4] << 8 | packet[end - 3]
    query = Query(packet, packet[HEADER_SIZE : end - 4], kind, question, edns)
    if packet[end - 2] << 8 | packet[end - 1] != CLASS_IN or kind in (RecordType.AXFR, RecordType.IXFR):
        raise NotAnswered(answer_with(query, Rcode.REFUSED))
    return query


def question_of(name: bytes, kind: int) -> bytes:
    """Returns name, type and class IN as in a message."""
    return name + kind.to_bytes(2, "big") + CLASS_IN.to_bytes(2, "big")


def query_packet(ident: int, question: bytes, *, flags: int = RD << 8, opt: bytes = b"") -> bytes:
    """Returns a query with one question. flags: third and fourth byte of the header. opt: the OPT record, empty without EDNS."""
    head = ident.to_bytes(2, "big") + flags.to_bytes(2, "big") + b"\0\1\0\0\0\0" + bytes((0, bool(opt)))
    return head + question + opt


def udp_limit(size: int) -> int:
    """Returns the maximal size, in bytes, of an answer by UDP for a client that announces this EDNS size."""
    return min(max(size, SMALLEST_UDP_LIMIT), LARGEST_UDP_LIMIT)


def header_only(packet: bytes, rcode: int) -> bytes:
    """Returns a reply of twelve bytes: id, opcode, RD and CD of the query."""
    return packet[:2] + bytes((QR | packet[2] & (0x78 | RD), packet[3] & 0x10 | rcode)) + b"\0" * 8


def with_question(packet: bytes, question: bytes, rcode: int) -> bytes:
    """Returns a reply that repeats the question and has no records."""
    return packet[:2] + bytes((QR | packet[2] & (0x78 | RD), packet[3] & 0x10 | rcode)) + b"\0\1\0\0\0\0\0\0" + question


def answer_with(query: Query, rcode: int) -> bytes:
    """Returns a reply without records, with OPT if the query had one: for SERVFAIL and REFUSED."""
    reply = with_question(query.packet, query.question, rcode)
    if query.edns is None:
        return reply
    return reply[:11] + b"\1" + reply[12:] + query.edns.record()


def _end_of_question(packet: bytes) -> int:
    """Returns the offset after name, type and class. Raises NotAnswered for a pointer: the first name of a message has no target."""
    at = HEADER_SIZE
    size = len(packet)
    while at < size:
        label = packet[at]
        if label == 0:
            if at + 5 > size or at + 1 - HEADER_SIZE > LONGEST_NAME:
                break
            return at + 5
        if label > LONGEST_LABEL:
            break
        at += 1 + label
    raise NotAnswered(header_only(packet, Rcode.FORMERR))


def _find_opt(packet: bytes, at: int, before: int, additional: int) -> Edns | None:
    """Returns the OPT record among the additional ones; the records before those are only skipped.

    Raises BadName for a truncated record, a second OPT, or one with an owner or in another section.
    """
    found = None
    for index in range(before + additional):
        owner, at = read(packet, at)
        if at + 10 > len(packet):
            raise BadName("a record runs past the end")
        size = packet[at + 8] << 8 | packet[at + 9]
        end = at + 10 + size
        if end > len(packet):
            raise BadName("a record runs past the end")
        if packet[at] << 8 | packet[at + 1] == RecordType.OPT:
            if owner != b"\0" or index < before or found is not None:
                raise BadName("an OPT record where none may be")
            _check_options(packet, at + 10, end)
            found = Edns(packet[at + 2] << 8 | packet[at + 3], bool(packet[at + 6] & 0x80), packet[at + 5])
        at = end
    return found


def _check_options(packet: bytes, at: int, end: int) -> None:
    while at < end:
        if at + 4 > end:
            raise BadName("an option runs past the end")
        at += 4 + (packet[at + 2] << 8 | packet[at + 3])
    if at != end:
        raise BadName("an option runs past the end")
