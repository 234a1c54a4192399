"""Answers as bytes, ready to be sent: looked up by the bytes of the question.

An answer is prepared when its question comes for the first time, and forgotten when a Service it comes from changes. What
many Services can change (answers of no records, PTR) is forgotten with every change, for it is cheap to make again.
"""

from collections.abc import Iterable

from nodeagent.model.names import ObjectKey
from nodeagent.names.zone.index import ServiceEntry
from nodeagent.names.zone.lookup import Found, Lookup
from nodeagent.names.zone.service_names import ServiceNames
from nodeagent.wire.dns.codes import CLASS_IN, HEADER_SIZE, SMALLEST_UDP_LIMIT, TC, TCP_LIMIT, Rcode, RecordType
from nodeagent.wire.dns.message import Record, Sections, Writer, cut
from nodeagent.wire.dns.query import Query, udp_limit

PREPARED_LIMIT = 40_000
"""Answers kept that one Service decides; all are dropped when there are more."""
VOLATILE_LIMIT = 20_000
"""Answers kept that are forgotten with every change. Names that do not exist are as many as somebody likes to ask."""
PREPARED_BYTES = 16_000_000
"""Bytes of both."""
READY_LIMIT = 30_000
"""Whole replies kept by the bytes of the queries; all are dropped when there are more. Those that every change forgets have
half of it for themselves, so that names that do not exist push out no answers."""
READY_BYTES = 8_000_000
LONGEST_READY = 2_000
"""Bytes of a query and its reply; longer ones are put together each time."""
SINGLE_LIMIT = 400_000
"""A longer answer is prepared again for each question: that of more than 10,000 addresses."""
LONGEST_OPT = 11

Prepared = bytes
"""Flags (TC), rcode, the counts of the three sections, then the records: all after the question."""


class Turning:
    """Address records of one size that begin with another one each time, so that clients which take the first spread."""

    __slots__ = ("_count", "_doubled", "_size", "_turn")

    def __init__(self, records: bytes, count: int) -> None:
        self._size = len(records) // count
        self._count = count
        self._doubled = records + records
        self._turn = 0

    def __len__(self) -> int:
        return len(self._doubled)

    def next(self, room: int) -> Prepared:
        """The records from the next one on, as many as fit in `room` bytes."""
        head, size = self.head(room)
        return head + self.records(size)

    def head(self, room: int) -> tuple[Prepared, int]:
        """What stands before the records, and the bytes of as many as fit in `room` bytes."""
        count = min(self._count, room // self._size)
        head = b"\0\0" if count == self._count else bytes((TC, 0))
        return head + count.to_bytes(2, "big") + b"\0\0\0\0", count * self._size

    def records(self, size: int) -> bytes:
        """The records from the next one on, in so many bytes."""
        turn = self._turn = (self._turn + 1) % self._count
        start = turn * self._size
        return self._doubled[start : start + size]


class TurningRest:
    """A reply without its id, the records of which begin with another one each time."""

    __slots__ = ("_end", "_head", "_size", "_turning")

    def __init__(self, packet: bytes, question: bytes, turning: Turning, room: int, opt: bytes) -> None:
        self._turning = turning
        value, self._size = turning.head(room)
        self._head = compose(packet, question, value, opt)[2 : HEADER_SIZE + len(question)]
        self._end = opt

    def __len__(self) -> int:
        return len(self._head) + self._size + len(self._end)

    def next(self) -> bytes:
        """The reply, from the next record on."""
        return self._head + self._turning.records(self._size) + self._end


Ready = tuple[bytes | TurningRest, bytes, int]
"""A reply without its id, then type (as in the question) and rcode."""


class Answers:
    """Prepared answers of one index. `synced` is False until all objects are there: till then names are SERVFAIL.

    serial: Unix time of the last change, for SOA records.
    """

    def __init__(self, lookup: Lookup, *, synced: bool = False, serial: int = 1) -> None:
        self._lookup = lookup
        self.synced = synced
        self._serial = serial
        self._lasting: dict[bytes, Prepared | Turning] = {}
        self._volatile: dict[bytes, Prepared | Turning] = {}
        self._bytes = 0
        self.ready: dict[bytes, Ready] = {}
        """Replies by the bytes of their queries, ids left out; those of latest queries."""
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
        """Bytes of all prepared answers, about."""
        return self._bytes + self._ready_bytes

    def put(self, names: ServiceNames, serial: int) -> None:
        """Take in the latest state of a Service."""
        self._forget(self._lookup.index.put(names), serial)

    def remove(self, key: ObjectKey, serial: int) -> None:
        """A Service is gone."""
        self._forget(self._lookup.index.remove(key), serial)

    def changed(self, serial: int) -> None:
        """Namespaces or pods are others."""
        self._forget(None, serial)

    def _forget(self, entry: ServiceEntry | None, serial: int) -> None:
        self._serial = serial
        self._soas.clear()
        self._forget_volatile()
        for key in entry.prepared if entry is not None else ():
            self._lasting.pop(key, None)
            self._forget_ready(self._ready_of.pop(key, ()))
        if not self._lasting:
            self._bytes = 0

    def _forget_volatile(self) -> None:
        self._volatile.clear()
        self._forget_ready_volatile()

    def _forget_ready_volatile(self) -> None:
        self._forget_ready(self._ready_volatile)
        self._ready_volatile.clear()
        self._ready_volatile_bytes = 0

    def _forget_ready(self, packets: Iterable[bytes]) -> None:
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
        """The reply by UDP to a packet whose answer is prepared already; None for every other packet."""
        ready = self.ready.get(packet[2:]) or self.make_ready(packet)
        if ready is None:
            return None
        rest = ready[0]
        return packet[:2] + (rest if isinstance(rest, bytes) else rest.next())

    def make_ready(self, packet: bytes) -> Ready | None:
        """The reply by UDP to a packet whose answer is prepared already, kept for equal packets if it is not long; None
        for every other packet.

        A question that is found is a right one, whatever else the packet could have been.
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
        if isinstance(value, Turning):
            rest: bytes | TurningRest = TurningRest(packet, question, value, room, opt)
            rcode = 0
        elif len(value) - 8 > room:
            return None
        else:
            rest, rcode = compose(packet, question, value, opt)[2:], value[1]
        ready = rest, question[-4:-2], rcode
        self._keep_ready(packet[2:], ready, key)
        return ready

    def _keep_ready(self, packet: bytes, ready: Ready, key: bytes) -> None:
        """Until the answer to the question is forgotten."""
        size = len(packet) + len(ready[0])
        if size > LONGEST_READY:
            return
        lasting = key in self._lasting
        if not lasting and (
            len(self._ready_volatile) >= READY_LIMIT // 2 or self._ready_volatile_bytes + size > READY_BYTES // 2
        ):
            self._forget_ready_volatile()
        if len(self.ready) >= READY_LIMIT or self._ready_bytes + size > READY_BYTES:
            self._drop_ready()
        self.ready[packet] = ready
        self._ready_bytes += size
        if lasting:
            self._ready_of.setdefault(key, []).append(packet)
        else:
            self._ready_volatile.append(packet)
            self._ready_volatile_bytes += size

    def answer(self, query: Query, limit: int) -> bytes | Found:
        """The reply to a query; Found when (the rest of) it is to be asked upstream, with `alias` for a CNAME's target
        and without for the question as it is."""
        opt = query.opt
        key = query.question.lower()
        value = self._lasting.get(key) or self._volatile.get(key)
        if value is None:
            made = self._prepare(query, key)
            if isinstance(made, Found):
                return made
            value = made
        room = limit - HEADER_SIZE - len(query.question) - len(opt)
        if isinstance(value, Turning):
            return compose(query.packet, query.question, value.next(room), opt)
        whole = compose(query.packet, query.question, value, opt)
        return cut(whole, limit, len(opt))

    def _prepare(self, query: Query, key: bytes) -> Prepared | Turning | Found:
        name = query.name.lower()
        zone = self._lookup.zone_of(name)
        if zone is None:
            return Found(b"\0", alias=None)
        if not self.synced and not (query.kind == RecordType.TXT and name.startswith(b"\x0bdns-version")):
            return bytes((0, Rcode.SERVFAIL)) + b"\0\0\0\1\0\0" + self._soa(zone, len(name))
        found = self._lookup.find(name, query.kind)
        if found is None:
            return Found(b"\0", alias=None)
        if found.alias is not None and query.kind != RecordType.CNAME:
            return found
        value = self.encode(query.question, found)
        self._keep(key, value, found)
        return value

    def encode(self, question: bytes, found: Found) -> Prepared | Turning:
        """What stands after the question."""
        name_size = len(question) - 4
        if not found.answer:
            if question[-4:-2] == b"\0\6" and name_size == len(found.zone) and not found.rcode:
                return b"\0\0\0\1\0\0\0\0" + self._soa(found.zone, name_size)
            return bytes((0, found.rcode)) + b"\0\0\0\1\0\0" + self._soa(found.zone, name_size)
        kind = found.answer[0].kind
        if kind in (RecordType.A, RecordType.AAAA) and not found.additional and len(found.answer) > 1:
            return Turning(b"".join(map(_address_bytes, found.answer)), len(found.answer))
        answer, authority = self._with_soa(found, question)
        return encoded(question, Sections(answer, authority, found.additional), found.rcode)

    def _with_soa(self, found: Found, question: bytes) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
        """Answer and authority section. Below a chain of CNAMEs that ends in our zones at nothing is the SOA; it is the
        answer to a question for it when the chain ends at the zone."""
        kind, last = int.from_bytes(question[-4:-2], "big"), found.answer[-1]
        ends_here = found.alias is None and last.kind == RecordType.CNAME and found.rcode != Rcode.SERVFAIL
        if not ends_here or kind in (RecordType.CNAME, RecordType.ANY):
            return found.answer, ()
        soa = self._lookup.soa(found.zone, self._serial)
        if kind == RecordType.SOA and last.rdata.lower() == found.zone:
            return (*found.answer, soa), ()
        return found.answer, (soa,)

    def _soa(self, zone: bytes, name_size: int) -> bytes:
        """The SOA record below a question whose name has so many bytes and ends in the zone, whose letter case it
        takes over by pointing there."""
        known = self._soas.get((zone, name_size))
        if known is None:
            pointer = (0xC000 | HEADER_SIZE + name_size - len(zone)).to_bytes(2, "big")
            record = self._lookup.soa(zone, self._serial)
            rdata = b"\2ns\3dns" + pointer + b"\x0ahostmaster" + pointer + record.rdata[-20:]
            ttl = record.ttl.to_bytes(4, "big")
            known = pointer + b"\0\6\0\1" + ttl + len(rdata).to_bytes(2, "big") + rdata
            self._soas[zone, name_size] = known
        return known

    def _keep(self, key: bytes, value: Prepared | Turning, found: Found) -> None:
        size = len(value)
        if size > SINGLE_LIMIT:
            return
        lasting = found.source is not None and bool(found.answer)
        if self._bytes + size > PREPARED_BYTES or len(self._lasting) >= PREPARED_LIMIT:
            self._drop_all()
        if len(self._volatile) >= VOLATILE_LIMIT:
            self._forget_volatile()
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
    """What stands after the question, as much of it as a message can hold."""
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
    """A whole authoritative reply to a query of these bytes."""
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


def complete(query: Query, found: Found, message: Sections, rcode: int, limit: int) -> bytes:
    """The reply to a question whose CNAMEs lead out of the zones: the chain, then what upstream said of its end.

    Upstream's rcode counts (RFC 6604), unless it was led back into our zones, of which it knows nothing.
    """
    value = encoded(query.question, Sections((*found.answer, *message.answer)), rcode)
    opt = query.opt
    return cut(compose(query.packet, query.question, value, opt), limit, len(opt))


def _address_bytes(record: Record) -> bytes:
    """A record whose owner is the question's name."""
    return (
        b"\xc0\x0c"
        + record.kind.to_bytes(2, "big")
        + CLASS_IN.to_bytes(2, "big")
        + record.ttl.to_bytes(4, "big")
        + len(record.rdata).to_bytes(2, "big")
        + record.rdata
    )
