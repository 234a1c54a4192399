"""Our answers against CoreDNS's, query by query, without a process in between."""

import asyncio
from typing import Any

import pytest

from nodeagent.model.name_counts import UpstreamCounts
from nodeagent.names.feed.feed_messages import End, Namespaces, Put, Settings
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Waiting
from nodeagent.names.shares import Client
from nodeagent.names.zone.service_names import names_of
from nodeagent.wire.dns.codes import Rcode
from nodeagent.wire.dns.query import answer_with, read_query
from tests.harness.dns.reference import RecordedObjects, answers, differences, packet_of
from tests.harness.dns.scripted_resolver import ScriptedResolver

SERIAL = 1_700_000_000
BETTER = {
    "class": "other classes are refused",
    "chaos": "other classes are refused",
    "proto-level": "a name above existing ones exists",
    "empty-nonterminal": "a name above existing ones exists, for every type",
    "types-apex": "the apex exists for every type",
    "letter-case-apex": "letter case never counts",
    "types-missing": "a name that is missing is missing for SOA too",
    "srv-underscores": "only names with underscores are SRV names",
    "unnamed-port": "a port without a name has no SRV name",
    "externalname": "the CNAME stays, and the target's rcode counts",
    "externalname-types": "the CNAME stands there for every type",
    "dns-version": "the name exists for every type",
    "apex-names": "a name above existing ones exists",
    "pod-names": "nothing is below a pod's name, and it has no port",
    "sections": "a record that was announced must be there",
    "opt": "there is one OPT, at the root, among the additional records",
    "names": "a pointer in the first name of a message points at nothing",
    "ptr-shapes": "a name with a PTR record exists for every type; a mapped address is another one",
    "ptr-slice-without-service": "a slice without a Service has no name",
    "headless-srv-name": "additional records may be missing without TC",
    "headless-srv": "additional records may be missing without TC",
}
"""Cases of level odd in which we differ on purpose, and why: docs/decisions/0060-names-follow-the-rfcs.md."""


class Resolver:
    def __init__(self) -> None:
        self._script = ScriptedResolver()

    async def run(self) -> None: ...

    def figures(self) -> UpstreamCounts:
        return UpstreamCounts()

    async def resolve(self, query: bytes, client: Client) -> bytes:
        return self._script.reply(query) or answer_with(read_query(query), Rcode.SERVFAIL)


@pytest.fixture(scope="module")
def front() -> Front:
    objects = RecordedObjects()
    fed = ReceivedState(Settings())
    fed.take(Namespaces(tuple(objects.namespaces), SERIAL))
    fed.take(Put(tuple(names_of(one, objects.slices_of(key)) for key, one in objects.services.items()), SERIAL))
    fed.take(End(SERIAL))
    return Front(fed.answers, Resolver())


def reply(front: Front, record: dict[str, Any]) -> bytes | None:
    """The reply to a recorded query, by the way it takes in the process."""
    packet = packet_of(record["query"], 0x1234)
    tcp = record["transport"] == "tcp"
    quick = None if tcp else front.answers.reply(packet)
    answer = quick or front.reply(packet, tcp=tcp)
    return asyncio.run(front.resolve(answer)) if isinstance(answer, Waiting) else answer


def named(*levels: str) -> list[Any]:
    return [pytest.param(one, id=f"{one['id']}-{one['case']}") for one in answers() if one["level"] in levels]


@pytest.mark.parametrize("level", ["spec", "coredns"])
@pytest.mark.parametrize("again", [False, True], ids=["made", "prepared"])
def test_every_answer_is_the_recorded_one(front: Front, level: str, again: bool) -> None:
    """Twice: an answer that is made and one that was prepared must be the same."""
    records = [record for record in answers() if record["level"] == level]
    assert len(records) > 200
    wrong = {record["id"]: found for record in records if (found := differences(record, reply(front, record)))}
    assert not wrong
    assert again or front.answers.bytes_held


@pytest.mark.parametrize("record", named("odd"))
def test_an_odd_answer_is_the_recorded_one_or_better_for_a_reason(front: Front, record: dict[str, Any]) -> None:
    if differences(record, reply(front, record)):
        assert record["case"] in BETTER


def test_a_comparison_sees_a_difference(front: Front) -> None:
    one, other = [record for record in answers() if record["case"] == "clusterip-a"][:2]
    assert differences(one, reply(front, other))
