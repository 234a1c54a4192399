"""Selects the records of an upstream answer that belong to the question, and how long they may be cached. Pure.

All others are dropped, so that no server can put records of other names into our cache or our clients' caches.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from nodeagent.names.upstream.reply import Reply
from nodeagent.names.upstream.upstream_question import Asked
from nodeagent.wire.dns.codes import Rcode, RecordType
from nodeagent.wire.dns.domain_names import is_below
from nodeagent.wire.dns.message import NAMES_IN_RDATA, Record, Sections

RRSIG, NSEC, NSEC3, DS = 46, 47, 50, 43
PROOFS = frozenset({RRSIG, NSEC, NSEC3})
"""Kept with DO in every section: clients that want them check their signatures, and take no addresses from them."""


class AnswerKind(Enum):
    """POSITIVE: data. NEGATIVE: the name or the type does not exist (RFC 2308). FAILURE: everything else."""

    POSITIVE = 0
    NEGATIVE = 1
    FAILURE = 2


class AcceptedRecords(NamedTuple):
    """The accepted part of an answer. ttl: seconds for which it may be cached; 0: it may not."""

    sections: Sections
    worth: AnswerKind
    ttl: int


def belonging(reply: Reply, asked: Asked) -> AcceptedRecords:
    """Returns the records that belong to the question, with TTLs as RFC 2181 §8 reads them."""
    chain = aliases(asked, reply.sections.answer)
    wanted = asked.kind
    answer = tuple(
        _with_valid_ttl(record)
        for record in reply.sections.answer
        if _is_answer(record, wanted, chain) and _class_of(record) == asked.question[-2:]
    )
    authority = tuple(
        _with_valid_ttl(record)
        for record in reply.sections.authority
        if (
            record.kind in (RecordType.SOA, RecordType.NS, DS)
            and any(is_below(name, record.owner.lower()) for name in chain)
        )
        or (asked.ok and record.kind in PROOFS)
    )
    targets = {target for record in (*answer, *authority) for target in _targets(record)}
    additional = tuple(
        _with_valid_ttl(record)
        for record in reply.sections.additional
        if record.owner.lower() in targets
        and (record.kind in (RecordType.A, RecordType.AAAA) or (asked.ok and record.kind == RRSIG))
    )
    sections = Sections(answer, authority, additional)
    return _classify(reply.rcode, sections, asked, chain)


def aliases(asked: Asked, answer: Iterable[Record]) -> tuple[bytes, ...]:
    """Returns the name asked for and those to which CNAMEs lead from it, lower-case; a loop is followed once."""
    targets = {record.owner.lower(): record.rdata.lower() for record in answer if record.kind == RecordType.CNAME}
    chain = [asked.name]
    if asked.kind in (RecordType.CNAME, RecordType.ANY):
        return (asked.name,)
    while (following := targets.get(chain[-1])) is not None and following not in chain:
        chain.append(following)
    return tuple(chain)


def _classify(rcode: int, sections: Sections, asked: Asked, chain: tuple[bytes, ...]) -> AcceptedRecords:
    every = (*sections.answer, *sections.authority, *sections.additional)
    shortest = min((record.ttl for record in every), default=0)
    if rcode not in (Rcode.NOERROR, Rcode.NXDOMAIN):
        return AcceptedRecords(sections, AnswerKind.FAILURE, 0)
    final = any(
        record.owner.lower() == chain[-1] and (asked.kind in (record.kind, RecordType.ANY))
        for record in sections.answer
    )
    if rcode == Rcode.NOERROR and final:
        return AcceptedRecords(sections, AnswerKind.POSITIVE, shortest)
    zones = [record for record in sections.authority if record.kind == RecordType.SOA]
    if len(zones) != 1 or not is_below(chain[-1], zones[0].owner.lower()):
        return AcceptedRecords(sections, AnswerKind.NEGATIVE, 0)
    minimum = int.from_bytes(zones[0].rdata[-4:], "big")
    return AcceptedRecords(sections, AnswerKind.NEGATIVE, min(shortest, minimum))


def _is_answer(record: Record, wanted: int, chain: tuple[bytes, ...]) -> bool:
    owner = record.owner.lower()
    if record.kind == RecordType.DNAME or (record.kind == RRSIG and record.rdata[:2] == b"\0\x27"):
        return any(is_below(name, owner) for name in chain)
    return owner in chain and (wanted in (record.kind, RecordType.ANY) or record.kind in (RecordType.CNAME, RRSIG))


def _targets(record: Record) -> tuple[bytes, ...]:
    """Returns the names whose addresses may be in the additional section."""
    if record.kind not in (RecordType.NS, RecordType.MX, RecordType.SRV):
        return ()
    before, _ = NAMES_IN_RDATA[RecordType(record.kind)]
    return (record.rdata[before:].lower(),)


def _with_valid_ttl(record: Record) -> Record:
    """Returns the record; its TTL is 0 if the highest bit was set (RFC 2181 §8)."""
    return record._replace(ttl=0) if record.ttl >> 31 else record


def _class_of(record: Record) -> bytes:
    return record.klass.to_bytes(2, "big")
