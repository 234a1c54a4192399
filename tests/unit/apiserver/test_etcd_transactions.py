"""What the changes of its keys prove of a write whose answer was lost; what errors mean; which releases are good."""

import pytest

from nodeagent.apiserver.storage.etcd.etcd_messages import KeyValue, WatchEvent, read_range, read_watch
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.etcd.outcomes import Outcome, outcome_of
from nodeagent.apiserver.storage.etcd.transactions import Transaction, transaction
from nodeagent.apiserver.storage.etcd.versions import is_recommended, parse_version, reports_progress_correctly
from nodeagent.apiserver.storage.records import Change, draft
from nodeagent.wire.protobuf import Malformed

LAYOUT = Layout("/registry", {})


def put(name: str, expected: int | None, value: int = 0) -> Change:
    return Change("things", name, expected, draft({"metadata": {"name": name, "resourceVersion": "0"}, "value": value}))


def gone(name: str, expected: int | None) -> Change:
    return Change("things", name, expected, None)


def seen(change: Change, revision: int) -> WatchEvent:
    (key,), (value,) = (transaction(LAYOUT, [change]).keys, transaction(LAYOUT, [change]).values)
    return WatchEvent(value is None, KeyValue(key, revision, 1, value or b""))


def proven(*events: WatchEvent, of: list[Change]) -> int | None:
    """At which revision something else is there, as the events prove; 0: nothing, None: they prove nothing."""
    wanted: Transaction = transaction(LAYOUT, of)
    for event in events:
        wanted.record(event)
    found = wanted.proof_of_refusal()
    return None if found is None else found.actual


def test_two_writes_of_the_same_object_are_distinguished() -> None:
    """Of those under way one ends first, and what comes then has to reach the other."""
    first, second = (transaction(LAYOUT, [put("a", 5, 1)]) for _ in range(2))
    under_way = [first, second]
    under_way.remove(second)
    assert under_way == [first]


def test_nothing_seen_proves_nothing() -> None:
    assert proven(of=[put("a", 5)]) is None


def test_the_same_bytes_prove_nothing() -> None:
    assert proven(seen(put("a", 5, 1), 9), of=[put("a", 5, 1)]) is None
    assert proven(seen(gone("a", 5), 9), of=[gone("a", 5)]) is None


def test_a_later_write_of_the_same_bytes_proves_nothing() -> None:
    assert proven(seen(put("a", 5, 1), 9), seen(put("a", 9, 2), 10), of=[put("a", 5, 1)]) is None


def test_another_value_proves_that_it_was_not_carried_out_even_where_its_own_came_later() -> None:
    assert proven(seen(put("a", 5, 2), 8), seen(put("a", 8, 1), 9), of=[put("a", 5, 1)]) == 8


def test_earlier_writes_do_not_count() -> None:
    assert proven(seen(put("a", 3, 2), 5), of=[put("a", 5, 1)]) is None
    assert proven(seen(put("a", 3, 2), 5), seen(put("a", 5, 3), 9), of=[put("a", 5, 1)]) == 9


def test_a_deletion_and_a_write_are_not_the_same() -> None:
    assert proven(seen(put("a", 5, 1), 8), seen(gone("a", 8), 9), of=[gone("a", 5)]) == 8
    assert proven(seen(gone("a", 5), 8), of=[put("a", 5, 1)]) == 0


def test_a_key_that_was_to_be_made_proves_nothing() -> None:
    """Others may have made and removed it, and it may yet be made."""
    assert proven(seen(put("a", 0, 2), 8), seen(gone("a", 8), 9), of=[put("a", 0, 1)]) is None
    assert proven(seen(put("a", None, 2), 8), of=[put("a", None, 1)]) is None


def test_any_change_that_replaces_a_revision_can_prove_a_transaction() -> None:
    changes = [put("address", 0), put("a", 5, 1), gone("other", 3)]
    assert proven(seen(changes[1], 9), seen(changes[0], 9), of=changes) is None
    assert proven(seen(changes[1], 9), seen(put("other", 3, 2), 10), of=changes) == 10


@pytest.mark.parametrize(
    ("expected", "once"), [([0], False), ([None], False), ([0, None], False), ([5], True), ([0, 5], True)]
)
def test_only_writes_that_replace_a_revision_take_effect_once(expected: list[int | None], once: bool) -> None:
    changes = [put(f"n{number}", one) for number, one in enumerate(expected)]
    assert transaction(LAYOUT, changes).is_carried_out_once is once


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
def test_each_error_has_an_outcome(code: str, text: str, outcome: Outcome) -> None:
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
    assert reports_progress_correctly(parse_version(version)) is in_step
    assert is_recommended(parse_version(version)) is for_use


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\x05ab", b"\x80", b"\x08" + b"\xff" * 11, b"\x0b", b"\x0a\x02\x0a\x05"]
)
def test_malformed_bytes_are_recognised(data: bytes) -> None:
    for read in (read_range, read_watch):
        with pytest.raises(Malformed):
            read(data)
