"""Answers as bytes, ready to be sent: found by the bytes of the question.

An answer is prepared when its question arrives for the first time, and dropped when the Service it depends on changes.
Answers that depend on many Services (those without records, PTR) are dropped with every change, because they are cheap
to make.
"""

from collections.abc import Iterable

from nodeagent.model.names import ObjectKey
from nodeagent.names.zone.index import ServiceEntry
from nodeagent.names.zone.lookup import Lookup, LookupResult
from nodeagent.names.zone.service_names import ServiceNames
from nodeagent.wire.dns.codes import CLASS_IN, HEADER_SIZE, SMALLEST_UDP_LIMIT, TC, TCP_LIMIT, Rcode, RecordType
from nodeagent.wire.dns.message import Record, Sections, Writer, cut
from nodeagent.wire.dns.query import Query, udp_limit

PREPARED_LIMIT = 40_000
"""Answers that depend on one Service; all are dropped if there are more."""
VOLATILE_LIMIT = 20_000
"""Answers that are dropped with every change. Clients can ask for any number of names that do not exist."""
PREPARED_BYTES = 16_000_000
"""Bytes of both kinds together."""
READY_LIMIT = 30_000
"""Complete replies, by the bytes of the queries; all are dropped if there are more. Those that every change drops may
be half of them, so that names that do not exist do not push out other answers."""
READY_BYTES = 8_000_000
LONGEST_READY = 2_000
"""Bytes of a query and its reply; longer replies are composed each time."""
SINGLE_LIMIT = 400_000
"""Bytes of an answer; a longer one, with more than 10,000 addresses, is prepared again for each question."""
LONGEST_OPT = 11

Prepared = bytes
"""Flags (TC), rcode, the counts of the three sections, then the records: everything after the question."""


class RotatingRecords:
    """Address records of one size that start with the next record each time, to spread clients that use the first one."""

    __slots__ = ("_count", "_doubled", "_size", "_turn")

    def __init__(self, records: bytes, count: int) -> None:
        self._size = len(records) // count
        self._count = count
        self._doubled = records + records
        self._turn = 0

    def __len__(self) -> int:
        return len(self._doubled)

    def next(self, room: int) -> Prepared:
        """Returns the records from the next one on, as many as fit in `room` bytes."""
        head, size = self.head(room)
        return head + self.records(size)

    def head(self, room: int) -> tuple[Prepared, int]:
        """Returns the bytes before the records, and the size of as many records as fit in `room` bytes."""
        count = min(self._count, room // self._size)
        head = b"\0\0" if count == self._count else bytes((TC, 0))
        return head + count.to_bytes(2, "big") + b"\0\0\0\0", count * self._size

    def records(self, size: int) -> bytes:
        """Returns the records from the next one on, `size` bytes in all."""
        turn = self._turn = (self._turn + 1) % self._count
        start = turn * self._size
        return self._doubled[start : start + size]


class RotatingReply:
    """A reply without its id; its records start with the next one each time."""

    __slots__ = ("_end", "_head", "_size", "_turning")

    def __init__(self, packet: bytes, question: bytes, turning: RotatingRecords, room: int, opt: bytes) -> None:
        self._turning = turning
        value, self._size = turning.head(room)
        self._head = compose(packet, question, value, opt)[2 : HEADER_SIZE + len(question)]
        self._end = opt

    def __len__(self) -> int:
        return len(self._head) + self._size + len(self._end)

    def next(self) -> bytes:
        """Returns the reply, starting with the next record."""
        return self._head + self._turning.records(self._size) + self._end


Ready = tuple[bytes | RotatingReply, bytes, int]
"""A reply without its id, then type (as in the question) and rcode."""


class PreparedAnswers:
    """Prepared answers from one index. synced: False until all objects are known; until then names get SERVFAIL.
    serial: Unix time of the last change, for SOA records."""

    def __init__(self, lookup: Lookup, *, synced: bool = False, serial: int = 1) -> None:
        self._lookup = lookup
        self.synced = synced
        self._serial = serial
        self._lasting: dict[bytes, Prepared | RotatingRecords] = {}
        self._volatile: dict[bytes, Prepared | RotatingRecords] = {}
        self._bytes = 0
        self.ready: dict[bytes, Ready] = {}
        """Replies to the latest queries, by the bytes of the query without its id."""
        self._ready_of: dict[bytes, list[bytes]] = {}
        self._ready_volatile: list[bytes] = []
        self._ready_volatile_bytes = 0
        self._ready_bytes = 0
        self._soas: dict[tuple[bytes, int], bytes] = {}

    @property
    def lookup(self) -> Lookup:
        return self._lookup

    @property
    def bytes_held(self) -> int:
        """Bytes of all prepared answers, estimated."""
        return self._bytes + self._ready_bytes

    def put(self, names: ServiceNames, serial: int) -> None:
        """Stores the latest state of a Service."""
        self._invalidate(self._lookup.index.put(names), serial)

    def remove(self, key: ObjectKey, serial: int) -> None:
        """Removes a Service."""
        self._invalidate(self._lookup.index.remove(key), serial)

    def changed(self, serial: int) -> None:
        """Drops answers that depend on namespaces or pods, after these changed."""
        self._invalidate(None, serial)

    def _invalidate(self, entry: ServiceEntry | None, serial: int) -> None:
        self._serial = serial
        self._soas.clear()
        self._drop_volatile()
        for key in entry.prepared if entry is not None else ():
            self._lasting.pop(key, None)
            self._drop_ready_of(self._ready_of.pop(key, ()))
        if not self._lasting:
            self._bytes = 0

    def _drop_volatile(self) -> None:
        self._volatile.clear()
        self._drop_ready_volatile()

    def _drop_ready_volatile(self) -> None:
        self._drop_ready_of(self._ready_volatile)
        self._ready_volatile.clear()
        self._ready_volatile_bytes = 0

    def _drop_ready_of(self, packets: Iterable[bytes]) -> None:
        for packet in packets:
            ready = self.ready.pop(packet, None)
            if ready is not None:
                self._ready_bytes -= len(packet) + len(ready[0])

    def _drop_ready(self) -> None:
        self.ready.clear()
        self._ready_of.clear()
        self._ready_volatile.clear()
        self._ready_volatile_bytes = 0
        self._ready_bytes = 0

    def reply(self, packet: bytes) -> bytes | None:
        """Returns the reply by UDP to a packet whose answer is prepared already, else None."""
        ready = self.ready.get(packet[2:]) or self.make_ready(packet)
        if ready is None:
            return None
        rest = ready[0]
        return packet[:2] + (rest if isinstance(rest, bytes) else rest.next())

    def make_ready(self, packet: bytes) -> Ready | None:
        """Returns the reply by UDP to a packet whose answer is prepared already, else None. Keeps it for equal packets
        if it is short.

        The packet needs no further check: its question equals one that was parsed before.
        """
        if packet[4:10] != b"\0\1\0\0\0\0" or packet[2] & 0xF8:
            return None
        if packet[10:12] == b"\0\0":
            question = packet[12:]
            opt = b""
            limit = SMALLEST_UDP_LIMIT
        elif packet[10:12] == b"\0\1" and packet[-11:-8] == b"\0\0\x29" and packet[-5] == 0 and packet[-2:] == b"\0\0":
            question = packet[12:-11]
            opt = packet[-11:-6] + (b"\0\0\x80\0\0\0" if packet[-4] & 0x80 else b"\0\0\0\0\0\0")
            limit = udp_limit(packet[-8] << 8 | packet[-7])
        else:
            return None
        key = question.lower()
        value = self._lasting.get(key) or self._volatile.get(key)
        if value is None:
            return None
        room = limit - HEADER_SIZE - len(question) - len(opt)
        if isinstance(value, RotatingRecords):
            rest: bytes | RotatingReply = RotatingReply(packet, question, value, room, opt)
            rcode = 0
        elif len(value) - 8 > room:
            return None
        else:
            rest, rcode = compose(packet, question, value, opt)[2:], value[1]
        ready = rest, question[-4:-2], rcode
        self._keep_ready(packet[2:], ready, key)
        return ready

    def _keep_ready(self, packet: bytes, ready: Ready, key: bytes) -> None:
        """Keeps a reply until the answer to its question is dropped."""
        size = len(packet) + len(ready[0])
        if size > LONGEST_READY:
            return
        lasting = key in self._lasting
        if not lasting and (
            len(self._ready_volatile) >= READY_LIMIT // 2 or self._ready_volatile_bytes + size > READY_BYTES // 2
        ):
            self._drop_ready_volatile()
        if len(self.ready) >= READY_LIMIT or self._ready_bytes + size > READY_BYTES:
            self._drop_ready()
        self.ready[packet] = ready
        self._ready_bytes += size
        if lasting:
            self._ready_of.setdefault(key, []).append(packet)
        else:
            self._ready_volatile.append(packet)
            self._ready_volatile_bytes += size

    def answer(self, query: Query, limit: int) -> bytes | LookupResult:
        """Returns the reply to a query; LookupResult if upstream must be asked: for the target in `alias`, or for the whole
        question if `alias` is None."""
        opt = query.opt
        key = query.question.lower()
        value = self._lasting.get(key) or self._volatile.get(key)
        if value is None:
            made = self._prepare(query, key)
            if isinstance(made, LookupResult):
                return made
            value = made
        room = limit - HEADER_SIZE - len(query.question) - len(opt)
        if isinstance(value, RotatingRecords):
            return compose(query.packet, query.question, value.next(room), opt)
        whole = compose(query.packet, query.question, value, opt)
        return cut(whole, limit, len(opt))

    def _prepare(self, query: Query, key: bytes) -> Prepared | RotatingRecords | LookupResult:
        name = query.name.lower()
        zone = self._lookup.zone_of(name)
        if zone is None:
            return LookupResult(b"\0", alias=None)
        if not self.synced and not (query.kind == RecordType.TXT and name.startswith(b"\x0bdns-version")):
            return bytes((0, Rcode.SERVFAIL)) + b"\0\0\0\1\0\0" + self._soa(zone, len(name))
        found = self._lookup.find(name, query.kind)
        if found is None:
            return LookupResult(b"\0", alias=None)
        if found.alias is not None and query.kind != RecordType.CNAME:
            return found
        value = self.encode(query.question, found)
        self._keep(key, value, found)
        return value

    def encode(self, question: bytes, found: LookupResult) -> Prepared | RotatingRecords:
        """Returns everything after the question."""
        name_size = len(question) - 4
        if not found.answer:
            if question[-4:-2] == b"\0\6" and name_size == len(found.zone) and not found.rcode:
                return b"\0\0\0\1\0\0\0\0" + self._soa(found.zone, name_size)
            return bytes((0, found.rcode)) + b"\0\0\0\1\0\0" + self._soa(found.zone, name_size)
        kind = found.answer[0].kind
        if kind in (RecordType.A, RecordType.AAAA) and not found.additional and len(found.answer) > 1:
            return RotatingRecords(b"".join(map(_address_bytes, found.answer)), len(found.answer))
        answer, authority = self._with_soa(found, question)
        return encoded(question, Sections(answer, authority, found.additional), found.rcode)

    def _with_soa(self, found: LookupResult, question: bytes) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
        """Returns answer and authority section. If a chain of CNAMEs ends in our zones without data, the authority
        section has the SOA; it is in the answer if the chain ends at the zone and the question asks for it."""
        kind, last = int.from_bytes(question[-4:-2], "big"), found.answer[-1]
        ends_here = found.alias is None and last.kind == RecordType.CNAME and found.rcode != Rcode.SERVFAIL
        if not ends_here or kind in (RecordType.CNAME, RecordType.ANY):
            return found.answer, ()
        soa = self._lookup.soa(found.zone, self._serial)
        if kind == RecordType.SOA and last.rdata.lower() == found.zone:
            return (*found.answer, soa), ()
        return found.answer, (soa,)

    def _soa(self, zone: bytes, name_size: int) -> bytes:
        """Returns the SOA record for a question whose name has this many bytes and ends in the zone; it points to the
        question's zone, so that the letter case is the client's."""
        known = self._soas.get((zone, name_size))
        if known is None:
            pointer = (0xC000 | HEADER_SIZE + name_size - len(zone)).to_bytes(2, "big")
            record = self._lookup.soa(zone, self._serial)
            rdata = b"\2ns\3dns" + pointer + b"\x0ahostmaster" + pointer + record.rdata[-20:]
            ttl = record.ttl.to_bytes(4, "big")
            known = pointer + b"\0\6\0\1" + ttl + len(rdata).to_bytes(2, "big") + rdata
            self._soas[zone, name_size] = known
        return known

    def _keep(self, key: bytes, value: Prepared | RotatingRecords, found: LookupResult) -> None:
        size = len(value)
        if size > SINGLE_LIMIT:
            return
        lasting = found.source is not None and bool(found.answer)
        if self._bytes + size > PREPARED_BYTES or len(self._lasting) >= PREPARED_LIMIT:
            self._drop_all()
        if len(self._volatile) >= VOLATILE_LIMIT:
            self._drop_volatile()
        if lasting and found.source is not None:
            self._lasting[key] = value
            found.source.prepared.append(key)
            self._bytes += size + len(key)
        else:
            self._volatile[key] = value

    def _drop_all(self) -> None:
        self._drop_ready()
        self._lasting.clear()
        self._volatile.clear()
        self._bytes = 0
        for entry in self._lookup.index.entries():
            entry.prepared.clear()


def encoded(question: bytes, sections: Sections, rcode: int) -> Prepared:
    """Returns everything after the question, as much as a message can hold."""
    writer = Writer(question)
    counts = [0, 0, 0]
    full = False
    for index, records in enumerate(sections):
        for record in records:
            full = full or not writer.fits(record, TCP_LIMIT - LONGEST_OPT)
            if full:
                break
            counts[index] += 1
    missing = counts[0] < len(sections.answer) or counts[1] < len(sections.authority)
    head = bytes((TC if missing else 0, rcode))
    return head + b"".join(count.to_bytes(2, "big") for count in counts) + writer.body()[len(question) :]


def compose(packet: bytes, question: bytes, value: Prepared, opt: bytes) -> bytes:
    """Returns a complete authoritative reply to a query."""
    if opt:
        additional = (value[6] << 8 | value[7]) + 1
        return b"".join(
            (
                packet[:2],
                bytes((0x84 | packet[2] & 1 | value[0], packet[3] & 0x10 | value[1])),
                b"\0\1",
                value[2:6],
                additional.to_bytes(2, "big"),
                question,
                value[8:],
                opt,
            )
        )
    return b"".join(
        (
            packet[:2],
            bytes((0x84 | packet[2] & 1 | value[0], packet[3] & 0x10 | value[1])),
            b"\0\1",
            value[2:8],
            question,
            value[8:],
        )
    )


def complete(query: Query, found: LookupResult, message: Sections, rcode: int, limit: int) -> bytes:
    """Returns the reply to a question whose CNAMEs lead out of the zones: the chain, then upstream's answer for its
    end.

    Upstream's rcode is used (RFC 6604), unless the chain leads back into our zones, of which upstream knows nothing.
    """
    value = encoded(query.question, Sections((*found.answer, *message.answer)), rcode)
    opt = query.opt
    return cut(compose(query.packet, query.question, value, opt), limit, len(opt))


def _address_bytes(record: Record) -> bytes:
    """Returns the bytes of a record whose owner is the question's name."""
    return (
        b"\xc0\x0c"
        + record.kind.to_bytes(2, "big")
        + CLASS_IN.to_bytes(2, "big")
        + record.ttl.to_bytes(4, "big")
        + len(record.rdata).to_bytes(2, "big")
        + record.rdata
    )
