"""The rules a history is held to find what is planted in one that is right."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.harness.history.records import Fact, Fault, History, Increment, Read, Seen, Stream, Value, Write
from tests.harness.history.rules import Holding, Truth, disagreements, violations


def made(seed: int = 1, steps: int = 400) -> History:
    """A right history: two servers, clients that write and read one after the other, watchers that hear it all."""
    chance = random.Random(seed)
    history = History()
    now: dict[str, Fact] = {}
    revision = 0
    for step in range(steps):
        began, ended = float(step), step + 0.5
        key = f"object-{chance.randrange(6)}"
        held = now.get(key)
        client, server = f"client-{chance.randrange(8)}", f"server-{chance.randrange(2)}#0"
        text = f"t{step}"
        verb = chance.choice(["create", "update", "patch", "delete", "list", "get"])

        def wrote(status: int | None, number: int = 0, value: Value | None = None, expected: int | None = None) -> None:
            history.writes.append(
                Write(client, server, verb, key, text, began, ended, expected, status, number, value)  # noqa: B023
            )

        if verb == "list":
            items = {name: (fact.revision, fact.value) for name, fact in now.items() if fact.value is not None}
            history.reads.append(Read(client, server, began, ended, chance.random() < 0.7, revision, items))
        elif verb == "get":
            one = {key: (held.revision, held.value)} if held is not None and held.value is not None else {}
            history.reads.append(Read(client, server, began, ended, True, 0, one, key))
        elif verb == "create":
            if held is not None:
                wrote(409)
                continue
            revision += 1
            now[key] = Fact(revision, key, (text, ""), f"uid-{step}", frozenset({f"address-{step}"}))
            history.facts.append(now[key])
            wrote(201, revision, (text, ""))
        elif held is None or held.value is None:
            wrote(404, expected=revision)
        elif verb == "update" and chance.random() < 0.2:
            wrote(409, expected=held.revision - 1)
        elif verb == "delete":
            revision += 1
            history.facts.append(Fact(revision, key, None))
            del now[key]
            wrote(200, 0, None, held.revision)
        else:
            revision += 1
            value = (text, held.value[1]) if verb == "update" else (held.value[0], text)
            expected = held.revision if verb == "update" else None
            now[key] = replace(held, revision=revision, value=value)
            history.facts.append(now[key])
            # Of some nobody knows.
            wrote(None if chance.random() < 0.1 else 200, revision, value, expected)
    truth = Truth(history.facts)
    for watcher, since in (("w1", 0), ("w2", revision // 2)):
        stream = Stream(watcher, since)
        for fact in truth.between(since, revision):
            before = truth.before(fact)
            was = before.value if before is not None else None
            kind = "DELETED" if fact.value is None else "ADDED" if was is None else "MODIFIED"
            stream.events.append(Seen(kind, fact.revision, fact.key, fact.value or was))
            if chance.random() < 0.2:
                stream.events.append(Seen("BOOKMARK", fact.revision))
        history.streams.append(stream)
    history.faults = [Fault("server-0 killed", 100.0, 101.0), Fault("server-1 killed", 250.0, 251.0)]
    history.finals = {"server-0": truth.state(revision), "server-1": truth.state(revision)}
    return history


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_in_a_right_history(seed: int) -> None:
    assert violations(made(seed), enough=5, longest_seconds=1.0) == []


def lose_an_acknowledged_write(history: History) -> None:
    last = next(write for write in reversed(history.writes) if write.done and write.verb == "patch")
    history.facts = [fact for fact in history.facts if fact.revision != last.revision]


def acknowledge_as_something_else(history: History) -> None:
    at = next(n for n, write in enumerate(history.writes) if write.done and write.verb == "update")
    history.writes[at] = replace(history.writes[at], revision=history.writes[at].revision + 1)


def report_a_write_of_unknown_outcome_as_a_conflict(history: History) -> None:
    at = next(n for n, write in enumerate(history.writes) if write.status is None)
    history.writes[at] = replace(history.writes[at], status=409)


def write_twice(history: History) -> None:
    fact = next(fact for fact in reversed(history.facts) if fact.value is not None)
    again = replace(fact, revision=history.facts[-1].revision + 2)
    between = replace(fact, revision=history.facts[-1].revision + 1, value=("x", "y"))
    history.facts += [between, again]


def overwrite_what_another_wrote(history: History) -> None:
    at = next(n for n, write in enumerate(history.writes) if write.done and write.verb == "update")
    write = history.writes[at]
    assert write.expected is not None
    history.writes[at] = replace(write, expected=write.expected - 1)


def undo_with_a_patch(history: History) -> None:
    done = [n for n, write in enumerate(history.writes) if write.done and write.verb == "patch"]
    write = history.writes[done[-1]]
    assert write.value is not None
    old = ("older", write.value[1])
    history.writes[done[-1]] = replace(write, value=old)
    history.facts = [replace(fact, value=old) if fact.revision == write.revision else fact for fact in history.facts]


def create_over_another(history: History) -> None:
    at = next(n for n, fact in enumerate(history.facts) if fact.value is None)
    key = history.facts[at].key
    assert any(fact.key == key for fact in history.facts[at + 1 :])
    del history.facts[at]


def acknowledge_a_deletion_without_an_object(history: History) -> None:
    gone = next(fact for fact in reversed(history.facts) if fact.value is None)
    history.facts.remove(gone)


def delete_what_nobody_asked_for(history: History) -> None:
    history.writes = [write for write in history.writes if write.verb != "delete"]


def delete_and_say_no(history: History) -> None:
    at = next(n for n, write in enumerate(history.writes) if write.verb == "delete" and write.done)
    history.writes[at] = replace(history.writes[at], status=409)


def delete_for_two(history: History) -> None:
    history.writes.append(next(write for write in history.writes if write.verb == "delete" and write.done))


def read_stale(history: History) -> None:
    truth = Truth(history.facts)
    at = next(n for n, read in enumerate(history.reads) if read.consistent and not read.key and read.revision > 20)
    old = history.reads[at].revision - 3
    history.reads[at] = replace(history.reads[at], revision=old, items=truth.state(old))


def read_one_stale(history: History) -> None:
    truth = Truth(history.facts)
    for n, read in enumerate(history.reads):
        found = read.items.get(read.key) if read.key else None
        before = truth.at(read.key, found[0] - 1) if found is not None else None
        if before is not None and before.value is not None:
            history.reads[n] = replace(read, items={read.key: (before.revision, before.value)})
            return


def miss_one_that_is_there(history: History) -> None:
    at = next(n for n, read in enumerate(history.reads) if read.key and read.items)
    history.facts = [fact for fact in history.facts if fact.value is not None or fact.key != history.reads[at].key]
    history.reads[at] = replace(history.reads[at], items={})


def show_what_never_was(history: History) -> None:
    at = next(n for n, read in enumerate(history.reads) if not read.key and read.items)
    items = dict(history.reads[at].items)
    items.popitem()
    history.reads[at] = replace(history.reads[at], items=items)


def go_back_without_being_asked_for_the_latest(history: History) -> None:
    truth = Truth(history.facts)
    of_one = [n for n, read in enumerate(history.reads) if not read.key and read.server == "server-0#0"]
    at = of_one[-1]
    history.reads[at] = replace(history.reads[at], consistent=False, revision=3, items=truth.state(3))


def give_a_revision_that_was_passed(history: History) -> None:
    """A write that began after a later revision had been acknowledged."""
    done = [n for n, write in enumerate(history.writes) if write.done and write.verb == "create"]
    write = history.writes[done[0]]
    history.writes[done[0]] = replace(write, began=390.0, ended=391.0)


def keep_the_uid(history: History) -> None:
    fresh = [fact for fact in history.facts if fact.value is not None]
    uids = {fact.key: fact.uid for fact in reversed(fresh)}
    history.facts = [replace(fact, uid=uids[fact.key]) if fact.value else fact for fact in history.facts]


def change_the_uid(history: History) -> None:
    at = next(n for n, fact in enumerate(history.facts) if fact.value is not None and fact.value[1])
    history.facts[at] = replace(history.facts[at], uid="other")


def skip_an_event(history: History) -> None:
    events = history.streams[0].events
    del events[next(n for n, event in enumerate(events) if n > 20 and event.kind == "MODIFIED")]


def skip_the_first_event(history: History) -> None:
    del history.streams[1].events[0]


def repeat_an_event(history: History) -> None:
    events = history.streams[0].events
    at = next(n for n, event in enumerate(events) if n > 20 and event.kind == "ADDED")
    events.insert(at, events[at])


def turn_events_round(history: History) -> None:
    events = history.streams[0].events
    at = next(n for n, event in enumerate(events) if "BOOKMARK" not in (event.kind, events[n + 1].kind))
    events[at], events[at + 1] = events[at + 1], events[at]


def promise_too_much_in_a_bookmark(history: History) -> None:
    events = history.streams[0].events
    events.insert(20, Seen("BOOKMARK", events[25].revision))


def take_a_change_for_a_new_object(history: History) -> None:
    events = history.streams[0].events
    at = next(n for n, event in enumerate(events) if event.kind == "MODIFIED")
    events[at] = replace(events[at], kind="ADDED")


def show_an_older_state_of_what_was_deleted(history: History) -> None:
    events = history.streams[0].events
    at = next(n for n, event in enumerate(events) if event.kind == "DELETED")
    events[at] = replace(events[at], value=("older", ""))


def tell_of_what_never_happened(history: History) -> None:
    history.streams[0].events.append(Seen("MODIFIED", history.facts[-1].revision + 1, "object-0", ("a", "b")))


def give_an_address_twice(history: History) -> None:
    taken = next(iter(history.facts[-1].claims or history.facts[-2].claims or history.facts[-3].claims))
    history.facts = [replace(fact, claims=frozenset({taken})) if fact.value else fact for fact in history.facts]


def end_with_another_state(history: History) -> None:
    history.finals["server-1"].popitem()


def succeed_hardly_ever(history: History) -> None:
    history.writes = [write for write in history.writes if not write.done or not 100 < write.began < 250]


def hang(history: History) -> None:
    at = next(n for n, write in enumerate(history.writes) if write.done)
    history.writes[at] = replace(history.writes[at], began=-20.0)


PLANTED: tuple[tuple[Callable[[History], None], str], ...] = (
    (lose_an_acknowledged_write, "acknowledged at"),
    (acknowledge_as_something_else, "kept as"),
    (report_a_write_of_unknown_outcome_as_a_conflict, "refused with 409 and written"),
    (write_twice, "written 2 times"),
    (overwrite_what_another_wrote, "a lost update"),
    (undo_with_a_patch, "a lost update"),
    (create_over_another, "over Fact"),
    (acknowledge_a_deletion_without_an_object, "it was not deleted"),
    (delete_what_nobody_asked_for, "nobody asked for it"),
    (delete_and_say_no, "refused to all and carried out"),
    (delete_for_two, "acknowledged to 2 clients"),
    (read_stale, ": stale"),
    (read_one_stale, ": stale"),
    (miss_one_that_is_there, "404 while it was there"),
    (show_what_never_was, "kept was"),
    (go_back_without_being_asked_for_the_latest, "went back"),
    (give_a_revision_that_was_passed, "had been acknowledged"),
    (keep_the_uid, "has the uid of one that was deleted"),
    (change_the_uid, "another uid"),
    (skip_an_event, "left out"),
    (skip_the_first_event, "left out"),
    (repeat_an_event, "twice"),
    (turn_events_round, "after"),
    (promise_too_much_in_a_bookmark, "a bookmark had said"),
    (take_a_change_for_a_new_object, "should be MODIFIED"),
    (show_an_older_state_of_what_was_deleted, "shows ('older', '')"),
    (tell_of_what_never_happened, "never happened"),
    (give_an_address_twice, "is held by"),
    (end_with_another_state, "in the end server-1"),
    (succeed_hardly_ever, "the run shows nothing"),
    (hang, "answered after"),
)


@pytest.mark.parametrize(("plant", "said"), [pytest.param(*planted, id=planted[0].__name__) for planted in PLANTED])
def test_planted_violations_are_found(plant: Callable[[History], None], said: str) -> None:
    history = made()
    plant(history)
    found = violations(history, enough=5, longest_seconds=1.0)
    assert any(said in line for line in found), found


def test_a_server_must_show_acknowledged_writes_of_another() -> None:
    history = History(
        facts=[Fact(1, "a", ("x", ""), "u"), Fact(2, "a", ("y", ""), "u")],
        writes=[
            Write("c", "one#0", "create", "a", "x", 0, 1, None, 201, 1, ("x", "")),
            Write("c", "one#0", "update", "a", "y", 2, 3, 1, 200, 2, ("y", "")),
        ],
        reads=[Read("d", "two#0", 4, 5, True, 1, {"a": (1, ("x", ""))})],
    )
    assert [line for line in violations(history) if "stale" in line]
    history.reads = [replace(history.reads[0], consistent=False)]
    assert violations(history) == []


def has(revision: int, name: str, *claims: str) -> Holding:
    return Holding(revision, f"services/{name}", frozenset(claims), recorded=False)


def taken(revision: int, claim: str, *, ends: bool = False) -> Holding:
    return Holding(revision, f"records/{claim}", frozenset(() if ends else {claim}), recorded=True)


ALL_RIGHT = [
    has(5, "a", "10.0.0.1", "30001"),
    taken(5, "10.0.0.1"),
    taken(5, "30001"),
    has(6, "a", "10.0.0.1"),
    taken(6, "30001", ends=True),
    has(7, "b", "10.0.0.2"),
    taken(7, "10.0.0.2"),
    has(8, "a"),
    taken(8, "10.0.0.1", ends=True),
]


def test_records_that_come_and_go_with_what_services_have_agree() -> None:
    assert list(disagreements(ALL_RIGHT)) == []


@pytest.mark.parametrize("left_out", range(len(ALL_RIGHT)))
def test_a_record_or_a_service_that_is_not_written_along_is_found(left_out: int) -> None:
    changed = ALL_RIGHT[:left_out] + ALL_RIGHT[left_out + 1 :]
    assert any(f"at {ALL_RIGHT[left_out].revision} " in line for line in disagreements(changed))


def test_one_address_of_two_services_is_found() -> None:
    assert list(disagreements([*ALL_RIGHT, has(9, "c", "10.0.0.2")])) == ["at 9 10.0.0.2 is had by two Services"]


def counted(*increments: Increment, kept: int) -> list[str]:
    """Of a counter that stands at 0 at revision 1, and goes up by one with each revision."""
    facts = [Fact(revision, "counter", (str(revision - 1), "")) for revision in range(1, kept + 2)]
    return violations(History(facts=facts, increments=list(increments)))


def raised(client: str, to: int, status: int | None = 200) -> Increment:
    return Increment(client, "server-0#0", "counter", to, to, status, to + 1 if status == 200 else 0)


def test_counters_end_between_what_was_acknowledged_and_what_nobody_knows_of() -> None:
    assert counted(raised("a", 1), raised("b", 1, 409), raised("b", 2), kept=2) == []
    assert counted(raised("a", 1), raised("b", 2, None), kept=1) == []
    assert counted(raised("a", 1), raised("b", 2, None), kept=2) == []
    (line,) = counted(raised("a", 1), raised("b", 2, 409), kept=2)
    assert line == "counter ends at 2: 1 increments were acknowledged, of 0 nobody knows"


def test_one_increment_is_acknowledged_to_one_client() -> None:
    below, twice = counted(raised("a", 1), raised("b", 1), kept=1)
    assert below == "counter ends at 1: 2 increments were acknowledged, of 0 nobody knows"
    assert "acknowledged at 2, as was that by a" in twice


def test_an_increment_replaces_the_revision_it_insists_on() -> None:
    (lost,) = counted(raised("a", 1), replace(raised("b", 2), expected=1), kept=2)
    assert "a lost update" in lost
    (never,) = counted(raised("a", 1), replace(raised("b", 2), count=5), kept=2)
    assert "kept was Fact" in never
