"""For any Services and any question: the answer is what a list of all names says by the rules of the DNS."""

from random import Random

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import msgspec
import pytest

from nodeagent.model.name_counts import UpstreamCounts
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, key_of, service_of
from nodeagent.names.feed.feed_messages import End, Namespaces, Put, Settings
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Waiting
from nodeagent.names.shares import Client
from nodeagent.names.zone.service_names import names_of
from tests.harness.dns.random_objects import Document, random_objects, random_questions
from tests.harness.dns.zone_listing import Expected, ZoneListing
from tests.harness.effort import examples

CLUSTERS = examples(12)
QUESTIONS = 60
SERIAL = 1_700_000_000
LIMITS = (512, 512, 1232, 4096)
BY_TCP = 0.3


class Resolver:
    """Answers nothing; that it was asked counts."""

    async def run(self) -> None: ...

    def figures(self) -> UpstreamCounts:
        return UpstreamCounts()

    async def resolve(self, query: bytes, client: Client) -> bytes:
        raise AssertionError(f"asked upstream: {query!r}")


def front_of(documents: list[Document]) -> Front:
    services = [msgspec.convert(one, Service) for one in documents if one["kind"] == "Service"]
    slices: dict[ObjectKey, list[EndpointSlice]] = {}
    for one in documents:
        if one["kind"] == "EndpointSlice":
            converted = msgspec.convert(one, EndpointSlice)
            owner = service_of(converted)
            assert owner is not None
            slices.setdefault(owner, []).append(converted)
    fed = ReceivedState(Settings())
    fed.take(Namespaces(tuple(one["metadata"]["name"] for one in documents if one["kind"] == "Namespace"), SERIAL))
    fed.take(Put(tuple(names_of(one, slices.get(key_of(one), ())) for one in services), SERIAL))
    fed.take(End(SERIAL))
    return Front(fed.answers, Resolver())


def ask(front: Front, name: str, kind: str, limit: int, *, tcp: bool) -> dns.message.Message | None:
    """The answer, by the way it takes in the process; None if it is for the resolver behind us."""
    edns = -1 if limit == LIMITS[0] else 0
    packet = dns.message.make_query(name, kind, use_edns=edns, payload=limit).to_wire()
    reply = (None if tcp else front.answers.reply(packet)) or front.reply(packet, tcp=tcp)
    if isinstance(reply, Waiting):
        return None
    assert reply is not None
    assert tcp or len(reply) <= limit
    return dns.message.from_wire(reply)


def differs(expected: Expected | None, message: dns.message.Message | None, *, whole: bool) -> str:
    """How an answer is other than expected; empty when it is as expected. whole: there is room for everything."""
    if expected is None or message is None:
        return "" if expected is None and message is None else f"expected {expected}, got {message}"
    cut = not whole and bool(message.flags & dns.flags.TC)
    answer, authority, additional = map(records_of, (message.answer, message.authority, message.additional))
    right = (
        dns.rcode.to_text(message.rcode()) == expected.rcode
        and bool(message.flags & dns.flags.AA)
        and (answer == expected.answer or (cut and answer < expected.answer))
        and (additional == expected.additional or (not whole and additional < expected.additional))
        and {owner for owner, kind, _ in authority if kind == "SOA"} == ({expected.soa} if expected.soa else set())
    )
    return "" if right else f"expected {expected}, got {message}"


def records_of(section: list[dns.rrset.RRset]) -> set[tuple[str, str, str]]:
    """Owner, type and data of each, in lower case; without the data of a SOA."""
    return {
        (
            one.name.to_text().lower(),
            dns.rdatatype.to_text(one.rdtype),
            "" if one.rdtype == dns.rdatatype.SOA else data.to_text().lower(),
        )
        for one in section
        for data in one
    }


def wrong_answers(documents: list[Document], front: Front, random: Random, count: int) -> list[str]:
    """What of so many questions about these objects is answered otherwise, each asked twice: the second answer was prepared."""
    listing = ZoneListing(documents)
    wrong = []
    for name, kind in random_questions(random, listing, count):
        limit, tcp = random.choice(LIMITS), random.random() < BY_TCP
        expected = listing.ask(name.lower(), kind)
        for _ in range(2):
            if said := differs(expected, ask(front, name, kind, limit, tcp=tcp), whole=tcp):
                wrong.append(f"{name} {kind}: {said}")
    return wrong


@pytest.mark.parametrize("seed", range(CLUSTERS))
def test_an_answer_is_what_the_list_of_names_says(seed: int) -> None:
    random = Random(seed)
    documents = random_objects(random, random.choice((5, 15, 25)))
    assert wrong_answers(documents, front_of(documents), random, QUESTIONS) == []


def test_missing_endpoints_are_seen() -> None:
    """Enough of the questions are about names with data."""
    documents = random_objects(Random(1), 25)
    front = front_of([one for one in documents if one["kind"] != "EndpointSlice"])
    assert len(wrong_answers(documents, front, Random(1), QUESTIONS)) > QUESTIONS // 10
