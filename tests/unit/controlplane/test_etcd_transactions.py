"""What became of a write whose answer was lost, judged by the changes of its keys; what errors mean; which releases are good."""

import pytest

from nodeagent.controlplane.storage.etcd.layout import Layout
from nodeagent.controlplane.storage.etcd.messages import KeyValue, Malformed, WatchEvent, read_range, read_watch
from nodeagent.controlplane.storage.etcd.outcomes import Outcome, outcome_of
from nodeagent.controlplane.storage.etcd.transactions import Transaction, transaction
from nodeagent.controlplane.storage.etcd.versions import is_for_use, parse_version, tells_progress_in_step
from nodeagent.controlplane.storage.records import Change, draft

LAYOUT = Layout("/registry", {})


def put(name: str, expected: int | None, value: int = 0) -> Change:
    return Change("things", name, expected, draft({"metadata": {"name": name, "resourceVersion": "0"}, "value": value}))


def gone(name: str, expected: int | None) -> Change:
    return Change("things", name, expected, None)


def seen(change: Change, revision: int) -> WatchEvent:
    (key,), (value,) = (transaction(LAYOUT, [change]).keys, transaction(LAYOUT, [change]).values)
    return WatchEvent(value is None, KeyValue(key, revision, 1, value or b""))


def after(*events: WatchEvent, of: list[Change]) -> int:
    wanted: Transaction = transaction(LAYOUT, of)
    wanted.seen.extend(events)
    return wanted.done_at()


def test_two_writes_of_the_same_are_told_apart() -> None:
    """Of those under way one ends first, and what comes then has to reach the other."""
    first, second = (transaction(LAYOUT, [put("a", 5, 1)]) for _ in range(2))
    under_way = [first, second]
    under_way.remove(second)
    assert under_way == [first]


def test_nothing_seen_is_nothing_done() -> None:
    assert after(of=[put("a", 5)]) == 0


def test_its_own_value_next_after_what_it_expected_is_its_own() -> None:
    assert after(seen(put("a", 5, 1), 9), of=[put("a", 5, 1)]) == 9


def test_it_stays_its_own_although_somebody_changed_it_since() -> None:
    assert after(seen(put("a", 5, 1), 9), seen(put("a", 9, 2), 10), seen(gone("a", 10), 11), of=[put("a", 5, 1)]) == 9


def test_another_value_was_faster_even_where_its_own_came_later() -> None:
    assert after(seen(put("a", 5, 2), 8), seen(put("a", 8, 1), 9), of=[put("a", 5, 1)]) == 0


def test_a_key_that_others_made_and_removed_meanwhile_may_still_be_its_own() -> None:
    others = seen(put("a", 0, 2), 8), seen(gone("a", 8), 9)
    assert after(*others, of=[put("a", 0, 1)]) == 0
    assert after(*others, seen(put("a", 0, 1), 10), of=[put("a", 0, 1)]) == 10
    assert after(others[0], seen(put("a", 8, 1), 9), of=[put("a", 0, 1)]) == 0, "it was there when its value came"


def test_what_came_before_does_not_count() -> None:
    assert after(seen(put("a", 3, 1), 5), of=[put("a", 5, 1)]) == 0
    assert after(seen(put("a", 3, 1), 5), seen(put("a", 5, 1), 9), of=[put("a", 5, 1)]) == 9


def test_a_removal_is_its_own_when_the_key_went_next() -> None:
    assert after(seen(gone("a", 5), 9), of=[gone("a", 5)]) == 9
    assert after(seen(put("a", 5, 1), 8), seen(gone("a", 8), 9), of=[gone("a", 5)]) == 0


def test_without_expectation_any_such_change_will_do() -> None:
    assert after(seen(put("a", None, 2), 8), seen(put("a", None, 1), 9), of=[put("a", None, 1)]) == 9


def test_of_several_changes_one_that_was_expected_somewhere_tells_for_all() -> None:
    changes = [put("address", 0), put("a", 5, 1), gone("other", 3)]
    assert after(seen(changes[1], 9), of=changes) == 9
    assert after(seen(changes[0], 8), seen(put("a", 5, 2), 8), of=changes) == 0


@pytest.mark.parametrize(
    ("code", "text", "outcome"),
    [
        ("REFUSED", "Connect call failed", Outcome.NOT_DONE),
        ("UNAVAILABLE", "etcdserver: no leader", Outcome.NOT_DONE),
        ("UNAVAILABLE", "raft proposal dropped", Outcome.NOT_DONE),
        ("UNAVAILABLE", "etcdserver: leader changed", Outcome.UNKNOWN),
        ("UNAVAILABLE", "etcdserver: request timed out, possibly due to previous leader failure", Outcome.UNKNOWN),
        ("LATE", "", Outcome.UNKNOWN),
        ("LOST", "Connection lost", Outcome.UNKNOWN),
        ("UNKNOWN", "context deadline exceeded", Outcome.UNKNOWN),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Outcome.COMPACTED),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", Outcome.WRONG),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", Outcome.FULL),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Outcome.NOT_DONE),
        ("RESOURCE_EXHAUSTED", "trying to send message larger than max", Outcome.TOO_LARGE),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", Outcome.TOO_LARGE),
        ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request", Outcome.WRONG),
        ("NOT_FOUND", "etcdserver: requested lease not found", Outcome.NO_LEASE),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Outcome.DENIED),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Outcome.DENIED),
    ],
)
def test_what_an_error_means(code: str, text: str, outcome: Outcome) -> None:
    assert outcome_of(code, text) is outcome


@pytest.mark.parametrize(
    ("version", "in_step", "for_use"),
    [
        ("3.4.23", False, False),
        ("3.4.31", True, False),
        ("3.5.12", False, False),
        ("3.5.16", True, False),
        ("3.5.28", True, True),
        ("3.6.8", True, False),
        ("3.6.9", True, True),
        ("3.7.0", True, True),
        ("4.0.0-rc.1", True, True),
        ("nonsense", False, False),
    ],
)
def test_releases(version: str, in_step: bool, for_use: bool) -> None:
    assert tells_progress_in_step(parse_version(version)) is in_step
    assert is_for_use(parse_version(version)) is for_use


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\x05ab", b"\x80", b"\x08" + b"\xff" * 11, b"\x0b", b"\x0a\x02\x0a\x05"]
)
def test_bytes_that_are_no_message_are_said_to_be_none(data: bytes) -> None:
    for read in (read_range, read_watch):
        with pytest.raises(Malformed):
            read(data)
