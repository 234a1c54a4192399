"""What the DNS process reads: queries of clients, answers of servers, messages of an agent; and resolv.conf."""

from contextlib import suppress
from functools import cache

from nodeagent.names.feed import feed_messages as messages
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Waiting
from nodeagent.names.upstream.belonging import belonging
from nodeagent.names.upstream.prepared_reply import prepare
from nodeagent.names.upstream.reply import RejectReason, read_reply
from nodeagent.names.upstream.resolv_conf import parse_resolv_conf
from nodeagent.names.upstream.upstream_question import asked_by
from nodeagent.names.zone.prepared_answers import PREPARED_BYTES
from nodeagent.names.zone.service_names import names_of
from nodeagent.wire.dns.codes import HEADER_SIZE, TCP_LIMIT, RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.message import cut
from nodeagent.wire.dns.query import query_packet, question_of, read_query
from tests.harness.dns.no_upstream import NoUpstream
from tests.harness.dns.reference import RecordedObjects, answers, packet_of
from tests.harness.fuzzing.mutation import Target

TOKENS = [
    b"\xc0\x0c", b"\xc0\xff", b"\xff\xff", b"\0", b"\0\0\x29\x10\0\0\0\0\0\0\0", b"\0\x01\0\x01", b"\0\xff\0\xff", b"\x3f", b"\x40", b"\x80",
    b"\0\x05\0\x01", b"\0\x06\0\x01", b"\0\x21\0\x01", b"\0\x27\0\x01", b"\0\x0c\0\x01", b"\x03svc\x07cluster\x05local\0", b"\x03www\xc0\x10",
]  # fmt: skip
FIRST = question_of(from_text("www.example.com"), RecordType.A)
ASKED = read_query(query_packet(7, FIRST, flags=0x100, opt=b""))


@cache
def _front() -> Front:
    objects = RecordedObjects()
    fed = ReceivedState(messages.Settings())
    fed.take(messages.Put(tuple(names_of(one, objects.slices_of(key)) for key, one in objects.services.items()), 1))
    fed.take(messages.End(1))
    return Front(fed.answers, NoUpstream())


def _queries() -> list[bytes]:
    recorded = [packet_of(record["query"], 1) for record in answers()]
    return [packet for packet in recorded[::12] if len(packet) >= HEADER_SIZE]


def _check_query(packet: bytes) -> None:
    """A response with the same id that fits, or silence."""
    front = _front()
    for reply in (front.answers.reply(packet), front.reply(packet, tcp=False), front.reply(packet, tcp=True)):
        if reply is None or isinstance(reply, Waiting):
            continue
        assert len(reply) <= TCP_LIMIT
        assert reply[:2] == packet[:2]
        assert reply[2] & 0x80
    assert front.answers.bytes_held <= PREPARED_BYTES


def _upstream_answers() -> list[bytes]:
    """Answers with a name, an alias, a zone, an SRV record and an OPT record."""
    address = b"\xc0\x0c\0\1\0\1\0\0\1\x2c\0\4\xc0\0\2\x35"
    alias = b"\xc0\x0c\0\5\0\1\0\0\1\x2c\0\4\1a\xc0\x10"
    behind = b"\xc0\x2d\0\1\0\1\0\0\1\x2c\0\4\xc0\0\2\x35"
    zone = b"\xc0\x10\0\6\0\1\0\0\1\x2c\0\x1c\2ns\xc0\x10\1a\0" + bytes(20)
    service = b"\xc0\x0c\0\x21\0\1\0\0\1\x2c\0\x0a\0\0\0\0\0\x50\1a\xc0\x10"
    opt = b"\0\0\x29\4\xd0\0\0\0\0\0\0"

    def packet(counts: bytes, *records: bytes) -> bytes:
        return b"\0\7\x81\x80\0\1" + counts + FIRST + b"".join(records)

    return [
        packet(b"\0\1\0\0\0\1", address, opt),
        packet(b"\0\2\0\0\0\0", alias, behind),
        packet(b"\0\0\0\1\0\0", zone),
        packet(b"\0\1\0\0\0\1", service, opt),
        b"\0\7\x81\x82" + bytes(8),
    ]


def _check_answer(packet: bytes) -> None:
    """Rejected, or something that a client can be given, cut to any size it takes."""
    assert len(cut(packet, 512)) <= 512
    reply = read_reply(packet, 7, FIRST)
    if isinstance(reply, RejectReason):
        return
    asked = asked_by(ASKED)
    prepared = prepare(reply, belonging(reply, asked), asked)
    if prepared is not None:
        response = prepared.for_client(ASKED, age=1)
        assert len(response) <= TCP_LIMIT
        for limit in (512, 1232):
            assert len(cut(response, limit)) <= limit


def _check_messages(data: bytes) -> None:
    """The same however it is cut; messages, or BadFrame."""
    for kind in (messages.ToProcess, messages.FromProcess):
        found = []
        for pieces in ([data], [data[: len(data) // 2], data[len(data) // 2 :]]):
            decoder = messages.Decoder(kind, largest=messages.LARGEST_FROM_PROCESS)
            read: list[object] = []
            with suppress(messages.BadFrame):
                for piece in pieces:
                    read.extend(decoder.feed(piece))
            found.append(read)
        assert repr(found[0]) == repr(found[1])


def _messages() -> list[bytes]:
    objects = RecordedObjects()
    named = tuple(names_of(one, objects.slices_of(key)) for key, one in list(objects.services.items())[:3])
    to_process = (
        messages.Settings(),
        messages.Begin(),
        messages.Put(named, 1),
        messages.End(1),
        messages.Ping(1, FIRST),
    )
    from_process = (messages.Hello(7, messages.Settings()), messages.Pong(1, FIRST, 3), messages.Queries(("a", "b")))
    return [b"".join(messages.encode(one) for one in several) for several in (to_process, from_process)]


def _check_resolv_conf(data: bytes) -> None:
    parse_resolv_conf(data.decode("utf-8", "replace"))


TARGETS = (
    Target("queries for names", _queries(), TOKENS, _check_query),
    Target("answers of name servers", _upstream_answers(), TOKENS, _check_answer),
    Target(
        "messages about names",
        _messages(),
        [b"\x81\xa4type", b"\xc0", b"\xdd\xff\xff\xff\xff", b"\0\0\0\1", b"\xd9\x20"],
        _check_messages,
    ),
    Target(
        "resolv.conf",
        (b"# a\nsearch a.example b.example.\nnameserver 192.0.2.1\nnameserver fd00::1%lo\noptions ndots:5\n",),
        [b"nameserver ", b"\n", b"\r", b"\0", b"\xff", b"search ", b"domain ", b"%", b"::", b"\xe2\x80\xa8", b"."],
        _check_resolv_conf,
    ),
)
