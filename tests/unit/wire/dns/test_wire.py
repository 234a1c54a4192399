"""Messages as bytes, against dnspython as a second reader and writer."""

import contextlib
import random

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.wire.dns import domain_names
from nodeagent.wire.dns.codes import Rcode, RecordType
from nodeagent.wire.dns.message import BadMessage, Sections, cut, read_message
from nodeagent.wire.dns.query import NotAnswered, answer_with, read_query
from tests.harness.dns.written_message import write

LABELS = st.binary(min_size=1, max_size=63)
NAMES = st.lists(LABELS, max_size=8).filter(lambda labels: sum(map(len, labels)) + len(labels) < 255)


def question(text: str, kind: str = "A", **options: object) -> bytes:
    return dns.message.make_query(text, kind, **options).to_wire()  # type: ignore[arg-type]


def reply_to(packet: bytes) -> bytes:
    """What a packet that is no query gets; nothing for a query, and for silence."""
    try:
        read_query(packet)
    except NotAnswered as refused:
        return refused.reply or b""
    return b""


def big_answer(count: int, *, edns: bool = False) -> dns.message.Message:
    """A headless Service's answer with an address and a port for each of its endpoints."""
    query = dns.message.make_query("web.shop.svc.cluster.local", "SRV", use_edns=0 if edns else False)
    answer = dns.message.make_response(query)
    hosts = [f"h{index}.web.shop.svc.cluster.local." for index in range(count)]
    answer.answer.append(
        dns.rrset.from_text_list("web.shop.svc.cluster.local.", 30, "IN", "SRV", [f"0 1 80 {host}" for host in hosts])
    )
    answer.additional += [dns.rrset.from_text(host, 30, "IN", "A", "10.0.0.1") for host in hosts]
    return answer


@given(NAMES)
def test_a_name_is_read_as_it_was_written(labels: list[bytes]) -> None:
    wire = domain_names.encode(labels)
    assert domain_names.labels_of(wire) == labels
    assert domain_names.read(b"x" + wire, 1) == (wire, len(wire) + 1)
    assert dns.name.from_wire(wire, 0)[0].labels == (*labels, b"")


@pytest.mark.parametrize(
    ("name", "zone", "below"),
    [
        ("web.cluster.local.", "cluster.local.", True),
        ("cluster.local.", "cluster.local.", True),
        ("xcluster.local.", "cluster.local.", False),
        ("local.", "cluster.local.", False),
        ("anything.", ".", True),
    ],
)
def test_below_a_zone_means_at_a_border_of_labels(name: str, zone: str, below: bool) -> None:
    assert domain_names.is_below(domain_names.from_text(name), domain_names.from_text(zone)) is below


def test_a_label_that_only_looks_like_the_zone_is_not_below_it() -> None:
    assert not domain_names.is_below(
        domain_names.encode([b"x\7cluster", b"local"]), domain_names.from_text("cluster.local")
    )


def test_a_query_is_read() -> None:
    query = read_query(question("Web.Shop.svc.cluster.local.", "AAAA", use_edns=0, payload=1232, want_dnssec=True))
    assert domain_names.to_text(query.name) == "Web.Shop.svc.cluster.local."
    assert (query.kind, query.udp_limit) == (RecordType.AAAA, 1232)
    assert query.edns is not None
    assert query.edns.dnssec_ok


def test_an_answer_of_no_records_repeats_question_and_opt() -> None:
    query = read_query(question("Web.Shop.", use_edns=0, payload=4096))
    answer = dns.message.from_wire(answer_with(query, Rcode.SERVFAIL))
    assert answer.rcode() == dns.rcode.SERVFAIL
    assert answer.question[0].name.to_text() == "Web.Shop."
    assert (answer.edns, answer.payload) == (0, 4096)


HEADER = bytes.fromhex("1234 0100 0001 0000 0000 0000")
WEB = b"\3web\0\0\1\0\1"


@pytest.mark.parametrize(
    ("packet", "rcode", "size"),
    [
        (b"", None, 0),
        (HEADER[:11], None, 0),
        (HEADER[:2] + b"\x81" + HEADER[3:] + WEB, None, 0),
        (HEADER, Rcode.SERVFAIL, 12),
        (HEADER[:2] + b"\x11" + HEADER[3:] + WEB, Rcode.NOTIMP, 12),
        (HEADER[:5] + b"\2" + HEADER[6:] + WEB, Rcode.FORMERR, 12),
        (HEADER[:7] + b"\2" + HEADER[8:] + WEB, Rcode.FORMERR, 12),
        (HEADER[:11] + b"\3" + WEB, Rcode.FORMERR, 12),
        (HEADER + b"\3web", Rcode.FORMERR, 12),
        (HEADER + b"\3web\0\0\1", Rcode.FORMERR, 12),
        (HEADER + b"\xc0\x0c\0\1\0\1", Rcode.FORMERR, 12),
        (HEADER + b"\x41" + b"a" * 65 + b"\0\0\1\0\1", Rcode.FORMERR, 12),
        (HEADER + (b"\x3f" + b"a" * 63) * 4 + b"\0\0\1\0\1", Rcode.FORMERR, 12),
        (HEADER[:11] + b"\1" + WEB, Rcode.FORMERR, 21),
        (HEADER[:11] + b"\1" + WEB + bytes.fromhex("00 0029 04d0 00000000 0005 00"), Rcode.FORMERR, 21),
        (HEADER[:11] + b"\2" + WEB + bytes.fromhex("00 0029 04d0 00000000 0000") * 2, Rcode.FORMERR, 21),
        (HEADER[:11] + b"\1" + WEB + b"\1x" + bytes.fromhex("00 0029 04d0 00000000 0000"), Rcode.FORMERR, 21),
        (HEADER[:11] + b"\1" + WEB + bytes.fromhex("00 0029 04d0 00010000 0000"), Rcode.BADVERS, 32),
        (HEADER + WEB[:-1] + b"\3", Rcode.REFUSED, 21),
        (HEADER + b"\3web\0\0\xfc\0\1", Rcode.REFUSED, 21),
    ],
)
def test_the_answer_to_packets_that_are_not_queries(packet: bytes, rcode: Rcode | None, size: int) -> None:
    with pytest.raises(NotAnswered) as refused:
        read_query(packet)
    reply = refused.value.reply
    if rcode is None:
        assert reply is None
    else:
        assert reply is not None
        assert (int(dns.message.from_wire(reply).rcode()), len(reply)) == (int(rcode), size)


@pytest.mark.parametrize("tail", [b"", b"more bytes"])
def test_bytes_after_a_query_are_ignored(tail: bytes) -> None:
    assert read_query(HEADER + WEB + tail).question == WEB


def test_a_message_is_written_as_dnspython_compresses_it() -> None:
    answer = big_answer(20)
    question_bytes, sections = read_message(answer.to_wire())
    written = write(answer.to_wire()[:4], question_bytes, sections)
    assert dns.message.from_wire(written) == answer
    assert len(written) <= len(answer.to_wire())


@pytest.mark.parametrize("limit", [512, 513, 700, 1232, 4096])
@pytest.mark.parametrize("edns", [False, True])
def test_a_cut_answer_fits_and_holds_what_it_can(limit: int, edns: bool) -> None:
    whole = big_answer(100, edns=edns)
    cut_down = cut(whole.to_wire(max_size=65535), limit, 11 if edns else 0)
    read = dns.message.from_wire(cut_down)
    assert limit - 90 < len(cut_down) <= limit
    assert read.flags & dns.flags.TC
    assert read.edns == whole.edns
    assert set(read.answer[0]) < set(whole.answer[0])


def test_additional_records_are_left_out_without_tc() -> None:
    whole = big_answer(8)
    read = dns.message.from_wire(cut(whole.to_wire(), 512))
    assert not read.flags & dns.flags.TC
    assert read.answer == whole.answer
    assert 0 < len(read.additional) < len(whole.additional)


def test_an_answer_that_fits_is_not_changed() -> None:
    wire = big_answer(3).to_wire()
    assert cut(wire, 512) is wire


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_garbage_is_refused_and_never_more(garbage: bytes, place: int) -> None:
    wire = bytearray(big_answer(5).to_wire())
    wire[place : place + len(garbage)] = garbage
    for packet in (bytes(wire), garbage):
        with contextlib.suppress(BadMessage):
            read_message(packet)
        assert len(cut(packet, 512)) <= 512


def test_a_question_longer_than_a_name_can_be_is_not_kept() -> None:
    packet = bytes(5) + b"\1\0\1" + bytes(4) + (b"\x3f" + b"a" * 63) * 8 + bytes(600)
    assert cut(packet, 512) == bytes(2) + b"\2" + bytes(9)


def test_a_hundred_thousand_broken_queries_do_no_harm() -> None:
    chance = random.Random(20261122)
    good = [question("web.shop.svc.cluster.local"), question("a.b", "SRV", use_edns=0), big_answer(2).to_wire()]
    for _ in range(100_000):
        packet = bytearray(chance.choice(good))
        for _ in range(chance.randrange(4)):
            packet[chance.randrange(len(packet))] = chance.randrange(256)
        if chance.random() < 0.3:
            del packet[chance.randrange(len(packet)) :]
        assert len(reply_to(bytes(packet))) <= len(packet) + 11


def test_sections_of_a_written_message_are_read_again() -> None:
    question_bytes, sections = read_message(big_answer(4, edns=True).to_wire())
    assert read_message(write(b"\0\0\x84\0", question_bytes, sections))[1] == sections
    assert isinstance(sections, Sections)


def read_or_none(packet: bytes, at: int, known: dict[int, bytes] | None) -> tuple[bytes, int] | None:
    try:
        return domain_names.read(packet, at, known)
    except domain_names.BadName:
        return None


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([b"\1a", b"\2bc", b"\0", b"\xc0\0", b"\xc0\2", b"\xc0\4", b"\xc0\7"]), max_size=30).map(
        b"".join
    ),
    st.lists(st.integers(0, 70), max_size=10),
)
def test_a_name_is_the_same_when_others_of_its_message_are_known(packet: bytes, places: list[int]) -> None:
    known: dict[int, bytes] = {}
    for at in places:
        assert read_or_none(packet, at, known) == read_or_none(packet, at, None)


def test_pointers_to_long_names_are_followed_once() -> None:
    """Else a message of 64 KiB could take seconds to read."""
    long = b"\1a" * 100 + b"\0"
    packet = long + b"\xc0\0" * 1000
    known: dict[int, bytes] = {}
    at = domain_names.read(packet, 0, known)[1]
    for _ in range(1000):
        name, at = domain_names.read(packet, at, known)
        assert name == long
    assert len(known) == 101 + 1000
