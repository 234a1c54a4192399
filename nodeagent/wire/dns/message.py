"""Answers: reads one of another server, writes one, and cuts one to what the client accepts."""

from typing import NamedTuple

from nodeagent.wire.dns.codes import CLASS_IN, HEADER_SIZE, TC, RecordType
from nodeagent.wire.dns.domain_names import BadName, read, skip_name

LAST_POINTER_TARGET = 0x3FFF


class Record(NamedTuple):
    """One record; `rdata` holds no compressed names."""

    owner: bytes
    kind: int
    ttl: int
    rdata: bytes
    klass: int = CLASS_IN


class Sections(NamedTuple):
    """The records of a message; an OPT record is among the additional ones, with its TTL and class unchanged."""

    answer: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()


class BadMessage(ValueError):
    """Bytes that are not a DNS message."""


NAMES_IN_RDATA = {
    RecordType.NS: (0, 1),
    RecordType.CNAME: (0, 1),
    RecordType.PTR: (0, 1),
    RecordType.DNAME: (0, 1),
    RecordType.SOA: (0, 2),
    RecordType.MX: (2, 1),
    RecordType.SRV: (6, 1),
}
"""Type → bytes before the names, how many names; the types of RFC 1035 that may hold compressed ones, and SRV and
DNAME, which old servers compress too."""
COMPRESSED = frozenset({RecordType.NS, RecordType.CNAME, RecordType.PTR, RecordType.SOA, RecordType.MX})
"""Types in whose data names are compressed when written (RFC 3597, 4)."""


def read_message(packet: bytes) -> tuple[bytes, Sections]:
    """Returns the question section as bytes and all records. Raises BadMessage."""
    if len(packet) < HEADER_SIZE:
        raise BadMessage("shorter than a header")
    counts = [packet[at] << 8 | packet[at + 1] for at in (4, 6, 8, 10)]
    known: dict[int, bytes] = {}
    try:
        at = HEADER_SIZE
        question = b""
        for _ in range(counts[0]):
            name, end = read(packet, at, known)
            if end + 4 > len(packet):
                raise BadMessage("a question runs past the end")
            question += name + packet[end : end + 4]
            at = end + 4
        sections = []
        for count in counts[1:]:
            records = []
            for _ in range(count):
                record, at = _read_record(packet, at, known)
                records.append(record)
            sections.append(tuple(records))
    except BadName as error:
        raise BadMessage(str(error)) from error
    return question, Sections(*sections)


def _read_record(packet: bytes, at: int, known: dict[int, bytes]) -> tuple[Record, int]:
    owner, at = read(packet, at, known)
    start = at + 10
    if start > len(packet):
        raise BadMessage("a record runs past the end")
    kind = packet[at] << 8 | packet[at + 1]
    end = start + (packet[at + 8] << 8 | packet[at + 9])
    if end > len(packet):
        raise BadMessage("a record runs past the end")
    rdata = packet[start:end]
    if kind in NAMES_IN_RDATA:
        before, names = NAMES_IN_RDATA[RecordType(kind)]
        parts = [packet[start : start + before]]
        inner = start + before
        for _ in range(names):
            name, inner = read(packet, inner, known)
            parts.append(name)
        if inner > end:
            raise BadMessage("a name runs past its record")
        rdata = b"".join((*parts, packet[inner:end]))
    ttl = int.from_bytes(packet[at + 4 : at + 8], "big")
    return Record(owner, kind, ttl, rdata, packet[at + 2] << 8 | packet[at + 3]), end


class Writer:
    """Writes records after a question, with compressed names; the bytes start at offset 12 of the message."""

    def __init__(self, question: bytes) -> None:
        """question: name, type and class."""
        self._parts = [question]
        self._size = HEADER_SIZE + len(question)
        self._seen: dict[bytes, int] = {}
        self._note(question[:-4], HEADER_SIZE)

    @property
    def size(self) -> int:
        """Bytes of the message so far, header and question included."""
        return self._size

    def body(self) -> bytes:
        """Returns question and records."""
        return b"".join(self._parts)

    def add(self, record: Record) -> None:
        """Writes one more record."""
        self._put(self._compressed(record.owner, self._size))
        rdata = record.rdata
        if record.kind in COMPRESSED:
            rdata = self._compressed_rdata(record, self._size + 10)
        elif record.kind == RecordType.SRV:
            self._note(rdata[6:], self._size + 16)
        self._put(
            record.kind.to_bytes(2, "big")
            + record.klass.to_bytes(2, "big")
            + record.ttl.to_bytes(4, "big")
            + len(rdata).to_bytes(2, "big")
            + rdata
        )

    def fits(self, record: Record, limit: int) -> bool:
        """Writes the record if the message then has at most `limit` bytes; returns False if not: then write no other one with names."""
        size, count = self._size, len(self._parts)
        self.add(record)
        if self._size <= limit:
            return True
        self._size = size
        del self._parts[count:]
        return False

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)

    def _compressed_rdata(self, record: Record, at: int) -> bytes:
        before, names = NAMES_IN_RDATA[RecordType(record.kind)]
        rdata = record.rdata
        written = rdata[:before]
        inner = before
        for _ in range(names):
            end = inner
            while rdata[end]:
                end += 1 + rdata[end]
            written += self._compressed(rdata[inner : end + 1], at + len(written))
            inner = end + 1
        return written + rdata[inner:]

    def _compressed(self, name: bytes, at: int) -> bytes:
        """Returns the name as it is written at an offset: its longest part that is already in the message is a pointer."""
        lower = name.lower()
        inner = 0
        while name[inner]:
            target = self._seen.get(lower[inner:])
            if target is not None:
                return name[:inner] + (0xC000 | target).to_bytes(2, "big")
            if at + inner <= LAST_POINTER_TARGET:
                self._seen[lower[inner:]] = at + inner
            inner += 1 + name[inner]
        return name

    def _note(self, name: bytes, at: int) -> None:
        """Lets later names point into this one, which is uncompressed."""
        lower = name.lower()
        inner = 0
        while name[inner] and at + inner <= LAST_POINTER_TARGET:
            self._seen.setdefault(lower[inner:], at + inner)
            inner += 1 + name[inner]


def cut(message: bytes, limit: int, opt: int = 0) -> bytes:
    """Returns the message in at most `limit` bytes (at least 512), with the last records left out; compressed names point back,
    so that the beginning of a message is complete by itself. opt: bytes of the OPT record at its end, which stays.

    TC is set if a record of the answer or authority section is missing; additional ones may be missing without it
    (RFC 2181, 9). Of a message that cannot be read only the header is kept, with TC. The time depends on what is kept only.
    """
    size = len(message)
    if size <= limit:
        return message
    wanted = [message[at] << 8 | message[at + 1] for at in (6, 8, 10)]
    wanted[2] -= bool(opt)
    kept = [0, 0, 0]
    try:
        end = skip_name(message, HEADER_SIZE) + 4
        for section in range(3) if end <= limit - opt else ():  # the question alone may be too long
            while kept[section] < wanted[section]:
                after = _end_of_record(message, end)
                if after > limit - opt:
                    return _shortened(message, end, kept, opt, truncated=kept[:2] != wanted[:2])
                kept[section] += 1
                end = after
    except IndexError:
        pass
    return message[:2] + bytes((message[2] | TC, message[3])) + b"\0" * 8


def _end_of_record(message: bytes, at: int) -> int:
    """Returns where the next record begins. Raises IndexError."""
    at = skip_name(message, at)
    return at + 10 + (message[at + 8] << 8 | message[at + 9])


def _shortened(message: bytes, end: int, kept: list[int], opt: int, *, truncated: bool) -> bytes:
    """Returns the message up to a record's end, then its last `opt` bytes."""
    flags = bytes((message[2] | TC if truncated else message[2], message[3]))
    counts = b"".join(count.to_bytes(2, "big") for count in (*kept[:2], kept[2] + bool(opt)))
    return message[:2] + flags + message[4:6] + counts + message[HEADER_SIZE:end] + message[len(message) - opt :]
