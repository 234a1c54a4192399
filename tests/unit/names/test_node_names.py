"""When names are sent: after the pass that programmed them, and no sooner."""

import asyncio
import errno
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NamesHere, NodeState
from nodeagent.model.name_counts import NameCounts, UpstreamCounts, UpstreamFault
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.names.feed import cluster_dns
from nodeagent.names.feed.cluster_dns import FAILED_PASSES, NodeNames
from nodeagent.names.feed.feed_messages import Report, Settings
from tests.harness.dns.reference import RecordedObjects

WEB, DB = ObjectKey("shop", "web"), ObjectKey("shop", "db")
PLACES = (("10.96.0.10", 53),)
FINE, BROKEN = TableReport(), TableReport(error="no")


class RecordingFeeder:
    """Stands for the feeder."""

    def __init__(self) -> None:
        self.keys: list[set[ObjectKey] | None] = []

    def passed(self, keys: set[ObjectKey] | None) -> None:
        self.keys.append(keys)


@pytest.fixture
def feeder(monkeypatch: pytest.MonkeyPatch) -> RecordingFeeder:
    feeder = RecordingFeeder()
    monkeypatch.setattr(cluster_dns, "Feeder", lambda *_, **__: feeder)
    return feeder


def names(tmp_path: Path, dirty: set[ObjectKey]) -> NodeNames:
    return NodeNames(
        Settings(),
        RecordedObjects(),
        is_dirty=dirty.__contains__,
        namespaces=tuple,
        report=lambda _: None,
        path=tmp_path / "dns.sock",
    )


def report(*keys: ObjectKey, ip4: TableReport = FINE, ip6: TableReport = FINE) -> PassReport:
    return PassReport(0.0, 0.0, {Family.IPV4: ip4, Family.IPV6: ip6}, dirty=frozenset(keys))


def test_the_first_pass_tells_everything_and_later_ones_what_they_looked_at(
    feeder: RecordingFeeder, tmp_path: Path
) -> None:
    listener = names(tmp_path, set())
    for keys in ((WEB, DB), (WEB,), ()):
        listener.passed(report(*keys))
    assert feeder.keys == [None, {WEB}, set()]


def test_names_that_change_during_a_pass_wait_for_the_next(feeder: RecordingFeeder, tmp_path: Path) -> None:
    dirty = {WEB}
    listener = names(tmp_path, dirty)
    listener.passed(report())
    listener.passed(report(WEB, DB))
    dirty.clear()
    listener.passed(report(WEB))
    assert feeder.keys == [None, {DB}, {WEB}]


def test_a_failed_pass_holds_its_names_back(feeder: RecordingFeeder, tmp_path: Path) -> None:
    listener = names(tmp_path, set())
    listener.passed(report())
    listener.passed(report(WEB, ip6=BROKEN))
    assert feeder.keys == [None]
    listener.passed(report(DB))
    assert feeder.keys == [None, {WEB, DB}]


def test_one_family_that_keeps_failing_does_not_stop_the_other(feeder: RecordingFeeder, tmp_path: Path) -> None:
    listener = names(tmp_path, set())
    listener.passed(report())
    for _ in range(FAILED_PASSES):
        listener.passed(report(WEB, ip6=BROKEN))
    assert feeder.keys == [None, {WEB}]
    for _ in range(FAILED_PASSES):
        listener.passed(report(DB, ip4=BROKEN, ip6=BROKEN))
    assert feeder.keys == [None, {WEB}]


def test_without_names_nothing_is_fed_and_nothing_runs(feeder: RecordingFeeder, tmp_path: Path) -> None:
    listener = NodeNames(
        None,
        RecordedObjects(),
        is_dirty=lambda _: False,
        namespaces=tuple,
        report=lambda _: None,
        path=tmp_path / "dns.sock",
    )
    listener.passed(report(WEB))
    asyncio.run(listener.run())
    assert feeder.keys == []


def test_a_former_process_is_asked_again_where_no_file_can_be_opened(
    feeder: RecordingFeeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is to serve Services meanwhile, and says once what it cannot do."""
    attempts, reported = [], []

    async def request_end(path: Path) -> None:
        attempts.append(path)
        if len(attempts) < 3:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(cluster_dns, "request_end", request_end)
    monkeypatch.setattr(cluster_dns, "AGAIN_SECONDS", 0.0)
    listener = NodeNames(
        None,
        RecordedObjects(),
        is_dirty=set[ObjectKey]().__contains__,
        namespaces=tuple,
        report=lambda problems: reported.append([problem.reason for problem in problems]),
        path=tmp_path / "dns.sock",
    )
    listener.passed(report())
    asyncio.run(listener.run())
    assert len(attempts) == 3
    assert reported == [["FormerProcess"], ["FormerProcess"], []]
    assert feeder.keys == []


def test_queries_are_sent_elsewhere_before_the_process_ends(
    feeder: RecordingFeeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_dns, "ON_THEIR_WAY_SECONDS", 0.0)
    listener = names(tmp_path, set())
    listener.here = NamesHere(PLACES, answering=True)

    async def give_back() -> list[bool]:
        giving = asyncio.create_task(listener.give_back())
        steps = []
        for here in (NamesHere(PLACES, answering=True), NamesHere(former=PLACES)):
            await asyncio.sleep(0)
            listener.passed(replace(report(), node=NodeState(names=here)))
            await asyncio.sleep(0.01)
            steps.append(giving.done())
        return steps

    assert asyncio.run(give_back()) == [False, True]


def test_nobody_waits_for_a_pass_that_does_not_come(
    feeder: RecordingFeeder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_dns, "GIVING_BACK_SECONDS", 0.0)
    listener = names(tmp_path, set())
    listener.here = NamesHere(PLACES, answering=True)
    asyncio.run(listener.give_back())
    assert listener.here == NamesHere(former=PLACES)


def test_where_no_process_answers_nothing_is_given_back(feeder: RecordingFeeder, tmp_path: Path) -> None:
    listener = names(tmp_path, set())
    listener.here = NamesHere(PLACES)
    asyncio.run(listener.give_back())
    assert listener.here == NamesHere(PLACES)


def test_a_resolver_that_does_not_answer_is_a_problem_until_it_does(feeder: RecordingFeeder, tmp_path: Path) -> None:
    said: list[list[tuple[str, str]]] = []

    def take(problems: Iterable[Problem]) -> None:
        said.append([(one.subject, one.reason) for one in problems])

    listener = NodeNames(
        Settings(),
        RecordedObjects(),
        is_dirty=lambda _: False,
        namespaces=tuple,
        report=take,
        path=tmp_path / "dns.sock",
    )
    silent = (UpstreamFault("192.0.2.53:53", "silent"),)
    for faults in ((), silent, silent, ()):
        listener._take_report(Report(True, NameCounts(1, upstream=UpstreamCounts(faults=faults))))
    assert said == [[("DNS upstream 192.0.2.53:53", "UpstreamDown")], []]
