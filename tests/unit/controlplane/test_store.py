"""The store: what is committed is there, in order, for readers and for watchers, and survives."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.controlplane.api.watches import selected_kind
from nodeagent.controlplane.machinery.reading import Selection
from nodeagent.controlplane.machinery.selectors import parse_labels
from nodeagent.controlplane.storage.log import check, connect, copy_to
from nodeagent.controlplane.storage.records import (
    Change,
    Compacted,
    EventKind,
    Precondition,
    StorageFailed,
    StorageFull,
    draft,
)
from nodeagent.controlplane.storage.store import Store, Window

THINGS = "things"


def body(name: str, value: int = 0, labels: dict[str, str] | None = None, padding: int = 0) -> bytes:
    meta = {"name": name, "resourceVersion": "0", "labels": labels or {}}
    return draft({"metadata": meta, "value": value, "padding": "x" * padding})


def put(name: str, expected: int | None = None, value: int = 0, padding: int = 0) -> Change:
    return Change(THINGS, name, expected, body(name, value, padding=padding))


def gone(name: str, expected: int | None = None) -> Change:
    return Change(THINGS, name, expected, None, body(name))


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_record_carries_the_revision_it_was_written_at() -> None:
    async def scenario() -> None:
        async with Store(":memory:", clock=Clock()) as store:
            (first,) = await store.commit([put("a")])
            (second,) = await store.commit([put("a", first.revision, value=1)])
            assert (first.revision, second.revision, store.revision) == (1, 2, 2)
            record = store.get(THINGS, "a")
            assert record is not None
            assert record.document()["metadata"]["resourceVersion"] == "2"
            assert record.document()["value"] == 1

    asyncio.run(scenario())


def test_a_transaction_whose_assumption_is_wrong_writes_nothing() -> None:
    async def scenario() -> None:
        async with Store(":memory:", clock=Clock()) as store:
            await store.commit([put("a", 0)])
            with pytest.raises(Precondition) as found:
                await store.commit([put("b", 0), put("a", 0)])
            assert found.value.actual == 1
            assert store.get(THINGS, "b") is None
            assert store.revision == 1

    asyncio.run(scenario())


def test_of_concurrent_creations_one_wins() -> None:
    async def scenario() -> None:
        async with Store(":memory:", clock=Clock()) as store:
            results = await asyncio.gather(*(store.commit([put("a", 0)]) for _ in range(20)), return_exceptions=True)
            assert sum(not isinstance(result, Precondition) for result in results) == 1

    asyncio.run(scenario())


def test_paths_are_listed_in_order_and_by_prefix() -> None:
    async def scenario() -> None:
        async with Store(":memory:", clock=Clock()) as store:
            for name in ("b/2", "a/1", "ab/1", "a/2"):
                await store.commit([put(name)])
            collection = store.collection(THINGS)
            assert collection.paths() == ["a/1", "a/2", "ab/1", "b/2"]
            assert collection.paths("a/") == ["a/1", "a/2"]
            assert collection.paths("a/", after="a/1") == ["a/2"]
            await store.commit([gone("a/1")])
            assert collection.paths("a/") == ["a/2"]

    asyncio.run(scenario())


def test_the_past_can_be_read_until_it_is_compacted() -> None:
    async def scenario() -> None:
        clock = Clock()
        async with Store(":memory:", clock=clock, window=Window(seconds=10)) as store:
            await store.commit([put("a", value=1)])
            await store.commit([put("b")])
            await store.commit([put("a", value=2)])
            await store.commit([gone("b")])
            past = store.snapshot_at(THINGS, 2)
            assert {path: record.document()["value"] for path, record in past.items()} == {"a": 1, "b": 0}
            clock.now += 11
            await store.commit([put("c")])
            await store.compact()
            assert store.floor == 4
            with pytest.raises(Compacted):
                store.snapshot_at(THINGS, 3)
            assert set(store.snapshot_at(THINGS, 4)) == {"a"}

    asyncio.run(scenario())


def test_a_reopened_store_has_its_state_its_history_and_its_counter(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")

    async def scenario() -> None:
        clock = Clock()
        async with Store(path, clock=clock) as store:
            await store.commit([put("a", value=1)])
            await store.commit([put("a", value=2)])
            await store.commit([put("b")])
            await store.commit([gone("b")])
        async with Store(path, clock=clock) as store:
            assert store.revision == 4
            kinds = [event.kind for event in store.collection(THINGS).events_after(0)]
            assert kinds == [EventKind.ADDED, EventKind.MODIFIED, EventKind.ADDED, EventKind.DELETED]
            clock.now += 1000
            await store.compact()
        async with Store(path, clock=clock) as store:
            assert (store.revision, store.floor) == (4, 4)
            (record,) = await store.commit([put("c")])
            assert record.revision == 5

    asyncio.run(scenario())


def test_two_servers_on_one_file_see_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")

    async def scenario() -> None:
        async with Store(path, clock=Clock()) as one, Store(path, clock=Clock()) as two:
            await one.commit([put("a", 0)])
            with pytest.raises(Precondition):
                await two.commit([put("a", 0)])
            assert two.get(THINGS, "a") is not None
            await two.commit([put("b", 0)])
            await one.catch_up()
            assert one.get(THINGS, "b") is not None
            assert one.revision == two.revision == 2

    asyncio.run(scenario())


def test_a_full_store_says_so_and_stays_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")

    async def scenario() -> None:
        async with Store(path, clock=Clock(), limit_bytes=256 * 1024) as store:
            stored = 0

            async def fill() -> None:
                nonlocal stored
                for number in range(1000):
                    await store.commit([put(f"n{number}", 0, padding=10_000)])
                    stored += 1

            with pytest.raises(StorageFull):
                await fill()
            assert len(store.collection(THINGS).records) == stored
        async with Store(path, clock=Clock()) as store:
            assert len(store.collection(THINGS).records) == stored
            await store.commit([put("after", 0)])

    asyncio.run(scenario())


def test_a_store_outlives_those_who_no_longer_wait(tmp_path: Path) -> None:
    """A request that is cancelled before its turn, as at every shutdown, is passed over."""
    path = str(tmp_path / "store")

    async def scenario() -> None:
        async with Store(path, clock=Clock()) as store:
            other = connect(path)
            other.execute("BEGIN IMMEDIATE")
            held_up = asyncio.create_task(store.commit([put("a")]))
            await asyncio.sleep(0)
            requests = [store.catch_up(), store.snapshot(str(tmp_path / "copy"))]
            waiting = [asyncio.create_task(request) for request in requests]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            other.execute("ROLLBACK")
            other.close()
            async with asyncio.timeout(10):
                await held_up
                await store.commit([put("b")])
            assert list(store.collection(THINGS).records) == ["a", "b"]

    asyncio.run(scenario())


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    text = tmp_path / "text.db"
    text.write_text("not a database at all, but long enough to be read as one" * 50)

    async def scenario(path: Path) -> None:
        async with Store(str(path), clock=Clock()):
            pass

    for path in (other, text):
        with pytest.raises(StorageFailed):
            asyncio.run(scenario(path))


def test_a_snapshot_is_a_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Store(str(tmp_path / "s.db"), clock=Clock()) as store:
            await store.commit([put("a", value=7)])
            await store.snapshot(str(tmp_path / "copy.db"))
            await store.commit([put("b")])
        async with Store(str(tmp_path / "copy.db"), clock=Clock()) as copy:
            assert list(copy.collection(THINGS).records) == ["a"]

    asyncio.run(scenario())
    connection = connect(str(tmp_path / "s.db"))
    copy_to(connection, str(tmp_path / "second.db"))
    connection.close()
    second = connect(str(tmp_path / "second.db"))
    check(second)
    second.close()


Step = tuple[str, str, bool]
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "compact", "look"]), st.sampled_from("abc"), st.booleans()), max_size=40
)


@given(steps=STEPS, seed=st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_every_watcher_sees_each_change_once_and_in_order_or_is_told_to_list_again(
    steps: Sequence[Step], seed: int
) -> None:
    """Watchers start at random revisions, lag at random, some with a selector; a model of the history judges them."""

    async def scenario() -> None:
        random = Random(seed)
        clock = Clock()
        selection = Selection(labels=parse_labels("on=1"))
        history: list[tuple[int, str, bool | None]] = []
        watchers: list[tuple[int, list[tuple[int, EventKind, str]]]] = []
        async with Store(":memory:", clock=clock, window=Window(seconds=5)) as store:
            collection = store.collection(THINGS)
            positions: list[int] = []

            def look(index: int) -> None:
                if positions[index] < 0:
                    return
                try:
                    store.check_revision(positions[index])
                except Compacted:
                    assert positions[index] < store.floor
                    positions[index] = -1
                    return
                for event in collection.events_after(positions[index], random.randint(1, 5)):
                    kind = selected_kind(event, selection)
                    if kind is not None:
                        watchers[index][1].append((event.revision, kind, event.record.path))
                    positions[index] = event.revision

            for action, name, on in steps:
                clock.now += random.choice([0, 0, 1, 3])
                if action == "put":
                    labels = {"on": "1"} if on else {}
                    (record,) = await store.commit([Change(THINGS, name, None, body(name, labels=labels))])
                    history.append((record.revision, name, on))
                elif action == "delete" and collection.records.get(name) is not None:
                    (record,) = await store.commit([gone(name)])
                    history.append((record.revision, name, None))
                elif action == "compact":
                    await store.compact()
                else:
                    start = random.randint(0, store.revision)
                    watchers.append((start, []))
                    positions.append(start)
                for index in range(len(watchers)):
                    if random.random() < 0.5:
                        look(index)
            for index, (start, seen) in enumerate(watchers):
                while 0 <= positions[index] < store.revision:
                    look(index)
                expected = judge(history, start)
                if positions[index] < 0:
                    assert seen == expected[: len(seen)]
                else:
                    assert seen == expected

    asyncio.run(scenario())


def judge(history: list[tuple[int, str, bool | None]], start: int) -> list[tuple[int, EventKind, str]]:
    """What a watcher of the selection `on=1` from `start` should see, by the plainest reading of the protocol."""
    selected: dict[str, bool] = {}
    expected = []
    for revision, name, on in history:
        before, after = selected.get(name, False), bool(on)
        selected[name] = after
        if revision <= start or not (before or after):
            continue
        kind = EventKind.MODIFIED if before and after else EventKind.ADDED if after else EventKind.DELETED
        expected.append((revision, kind, name))
    return expected


WRITERS = textwrap.dedent(
    """
    import asyncio, os, sys, time
    from nodeagent.controlplane.storage.records import Change, draft
    from nodeagent.controlplane.storage.store import Store

    async def main(path):
        async with Store(path, clock=time.time) as store:
            start = store.revision
            async def write(worker):
                for number in range(10**6):
                    name = f"{start}-{worker}-{number}"
                    body = draft({"metadata": {"name": name, "resourceVersion": "0"}})
                    await store.commit([Change("things", name, 0, body)])
                    sys.stdout.write(name + "\\n")
                    sys.stdout.flush()
            await asyncio.gather(*(write(worker) for worker in range(8)))

    for line in sys.stdin:
        if not os.fork():
            print(os.getpid(), flush=True)
            asyncio.run(main(line.strip()))
        os.wait()
        print("", flush=True)
    """
)
"""For each path it reads, starts a process that writes there without end: its process id, what is acknowledged, and once
it was killed an empty line. That what they need is imported only once makes two hundred a matter of seconds."""


@pytest.fixture
def writers() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", WRITERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield process


def crash(writers: "subprocess.Popen[str]", path: Path, random: Random) -> list[str]:
    """Has a writer write, kills it after a random number of acknowledgements; returns the names it acknowledged."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(f"{path}\n")
    pid = int(writers.stdout.readline())
    acknowledged = [writers.stdout.readline().strip() for _ in range(random.randint(1, 60))]
    os.kill(pid, signal.SIGKILL)
    while line := writers.stdout.readline().strip():
        acknowledged.append(line)
    return acknowledged


def names_in(path: Path) -> set[str]:
    async def read() -> set[str]:
        async with Store(str(path), clock=Clock()) as store:
            return set(store.collection(THINGS).records)

    return asyncio.run(read())


def test_what_was_acknowledged_survives_a_kill(writers: "subprocess.Popen[str]", tmp_path: Path) -> None:
    random = Random(7)
    acknowledged: set[str] = set()
    for _ in range(8):
        acknowledged |= set(crash(writers, tmp_path / "s.db", random))
        assert acknowledged <= names_in(tmp_path / "s.db")


@pytest.mark.slow
def test_what_was_acknowledged_survives_two_hundred_kills(writers: "subprocess.Popen[str]", tmp_path: Path) -> None:
    random = Random(11)
    acknowledged: set[str] = set()
    for round_number in range(200):
        acknowledged |= set(crash(writers, tmp_path / "s.db", random))
        if round_number % 20 == 19:
            assert acknowledged <= names_in(tmp_path / "s.db")
