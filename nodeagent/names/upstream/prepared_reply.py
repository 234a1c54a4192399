"""An answer as bytes that serve all clients with the same question; only letter case, id, flags and age differ. Pure."""

from dataclasses import dataclass

from nodeagent.names.upstream.belonging import AcceptedRecords
from nodeagent.names.upstream.reply import Reply
from nodeagent.names.upstream.upstream_question import AD, Asked
from nodeagent.wire.dns.codes import CD, HEADER_RCODE, QR, RA, RD, TCP_LIMIT, Rcode
from nodeagent.wire.dns.domain_names import skip_name
from nodeagent.wire.dns.message import Sections, Writer
from nodeagent.wire.dns.query import Query


@dataclass(frozen=True, slots=True)
class PreparedReply:
    """An upstream answer, ready to be sent to any client.
    counts: records in the three sections. records: their bytes. ttls: offset in these, and seconds, of each TTL."""

    rcode: int
    flags: int
    counts: tuple[int, int, int]
    records: bytes
    ttls: tuple[tuple[int, int], ...]

    def for_client(self, query: Query, *, age: int = 0, at_most: int = 1 << 31, stale_ttl: int | None = None) -> bytes:
        """Returns the complete response. age: seconds since it was stored. at_most: upper limit of TTLs before `age` is
        subtracted.
        stale_ttl: if given, the value of every TTL, for an answer that has expired."""
        records = bytearray(self.records)
        for offset, ttl in self.ttls:
            left = max(0, min(ttl, at_most) - age) if stale_ttl is None else stale_ttl
            records[offset : offset + 4] = left.to_bytes(4, "big")
        rcode = self.rcode
        opt = b""
        if query.edns is not None:
            opt = query.edns.record(rcode=rcode)
        elif rcode > HEADER_RCODE:
            rcode = Rcode.SERVFAIL
        asked = query.packet
        wants_ad = asked[3] & AD or (query.edns is not None and query.edns.dnssec_ok)
        fourth = self.flags & (RA | AD if wants_ad else RA) | asked[3] & CD | rcode & HEADER_RCODE
        answer, authority, additional = self.counts
        counts = b"\0\1" + b"".join(n.to_bytes(2, "big") for n in (answer, authority, additional + bool(opt)))
        header = asked[:2] + bytes((QR | asked[2] & RD, fourth)) + counts
        return b"".join((header, query.question, records, opt))


def prepare(reply: Reply, kept: AcceptedRecords, asked: Asked) -> PreparedReply | None:
    """Returns the answer as bytes; None if it is longer than a message can be."""
    writer = Writer(asked.question)
    for section in kept.sections:
        for record in section:
            writer.add(record)
    if writer.size > TCP_LIMIT - 11:
        return None
    records = writer.body()[len(asked.question) :]
    flags = (RA if reply.recursive else 0) | (AD if reply.validated else 0)
    return PreparedReply(reply.rcode, flags, counts_of(kept.sections), records, find_ttls(records, kept.sections))


def failed(rcode: Rcode = Rcode.SERVFAIL) -> PreparedReply:
    """Returns an answer without records; RA is set because recursion is available."""
    return PreparedReply(rcode, RA, (0, 0, 0), b"", ())


def counts_of(sections: Sections) -> tuple[int, int, int]:
    return len(sections.answer), len(sections.authority), len(sections.additional)


def find_ttls(records: bytes, sections: Sections) -> tuple[tuple[int, int], ...]:
    """Returns offset and seconds of each TTL in what `Writer` wrote, in order."""
    found = []
    at = 0
    for section in sections:
        for record in section:
            at = skip_name(records, at)
            found.append((at + 4, record.ttl))
            at += 10 + (records[at + 8] << 8 | records[at + 9])
    return tuple(found)
