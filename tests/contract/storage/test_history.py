"""Ranges at a revision, watches from a revision, and what compaction takes away."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.apiserver.api.watches import selected_kind
from nodeagent.apiserver.machinery.reading import Selection
from nodeagent.apiserver.machinery.selectors import parse_labels
from nodeagent.apiserver.storage.port import Write
from nodeagent.apiserver.storage.records import Change, Compacted, EventKind, Revision, draft
from nodeagent.apiserver.storage.store import Window
from tests.harness.steps import finished

THINGS = "things"
NewBench = Callable[[], Any]


def body(name: str, value: int = 0, labels: dict[str, str] | None = None) -> bytes:
    return draft({"metadata": {"name": name, "resourceVersion": "0", "labels": labels or {}}, "value": value})


def put(name: str, expected: int | None = None, value: int = 0) -> Change:
    return Change(THINGS, name, expected, body(name, value))


def gone(name: str) -> Change:
    return Change(THINGS, name, None, None, body(name))


def test_paths_are_listed_in_order_and_by_prefix(new_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_bench().store() as store:
            for name in ("b/2", "a/1", "ab/1", "a/2"):
                await store.commit([put(name)])
            collection = store.collection(THINGS)
            assert collection.paths() == ["a/1", "a/2", "ab/1", "b/2"]
            assert collection.paths("a/") == ["a/1", "a/2"]
            assert collection.paths("a/", after="a/1") == ["a/2"]
            await store.commit([gone("a/1")])
            assert collection.paths("a/") == ["a/2"]

    asyncio.run(scenario())


def test_the_past_can_be_read_until_it_is_compacted(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store(window=Window(seconds=10)) as store:
            await store.commit([put("a", value=1)])
            (then,) = await store.commit([put("b")])
            (late,) = await store.commit([put("a", value=2)])
            (last,) = await store.commit([gone("b")])
            past = finished(store.collection(THINGS).past(then.revision))
            assert {path: record.document()["value"] for path, record in past.records.items()} == {"a": 1, "b": 0}
            assert past.paths() == ["a", "b"]
            bench.clock.now += 11
            await store.commit([put("c")])
            await store.compact()
            assert store.floor == last.revision
            with pytest.raises(Compacted):
                store.check_revision(late.revision)
            store.check_revision(last.revision)
            assert finished(store.collection(THINGS).past(last.revision)).paths() == ["a"]

    asyncio.run(scenario())


def test_a_reopened_store_has_its_state_its_history_and_its_counter(new_durable_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as store:
            await store.commit([put("a", value=1)])
            await store.commit([put("a", value=2)])
            await store.commit([put("b")])
            (last,) = await store.commit([gone("b")])
        async with bench.store() as store:
            assert store.revision == last.revision
            kinds = [event.kind for event in store.collection(THINGS).events_after(0)]
            assert kinds == [EventKind.ADDED, EventKind.MODIFIED, EventKind.ADDED, EventKind.DELETED]
            bench.clock.now += 1000
            await store.compact()
        async with bench.store() as store:
            assert (store.revision, store.floor) == (last.revision, last.revision)
            assert {path: r.document()["value"] for path, r in store.collection(THINGS).records.items()} == {"a": 2}
            (record,) = await store.commit([put("c")])
            assert record.revision > last.revision

    asyncio.run(scenario())


def test_a_revision_is_never_given_twice_although_nothing_is_left(new_durable_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as store:
            await store.commit([put("a")])
            (last,) = await store.commit([gone("a")])
            bench.clock.now += 1000
            await store.compact()
        async with bench.store() as store:
            assert not store.collection(THINGS).records
            (record,) = await store.commit([put("a", 0)])
            assert record.revision > last.revision

    asyncio.run(scenario())


def test_a_storage_opens_with_a_range_at_its_floor_and_all_that_came_later(new_durable_bench: NewBench) -> None:
    """Read at the port itself: what a store is built from."""

    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as store:
            for value in (1, 2, 3):
                await store.commit([put("a", value=value), put("b", value=value)])
            await store.commit([gone("b")])
            bench.clock.now += 1000
            await store.compact()
            floor = store.floor
            (later,) = await store.commit([put("c")])
        delivered: list[Revision] = []
        settled: list[object] = []

        def deliver(rows: Sequence[Revision], ended: Sequence[tuple[object, object]]) -> None:
            delivered.extend(rows)
            settled.extend(token for token, _ in ended)

        storage = bench.storage(None)
        loaded = await storage.open(deliver)
        assert (loaded.floor, loaded.counter) == (floor, later.revision)
        assert [(row.path, row.number > floor) for row in loaded.rows] == [("a", False), ("c", True)]
        storage.write([Write([put("d", 0)], 0, "mine"), Write([put("a", 0)], 0, "refused")])
        latest = await storage.catch_up(0)
        assert [(row.path, row.number) for row in delivered] == [("d", latest)]
        assert set(settled) == {"mine", "refused"}
        await storage.close()

    asyncio.run(scenario())


def test_the_latest_revision_is_one_that_has_been_delivered(new_bench: NewBench) -> None:
    """Although others go on writing while it is asked for."""

    async def scenario() -> None:
        latest_delivered = 0

        def deliver(rows: Sequence[Revision], _: Sequence[tuple[object, object]]) -> None:
            nonlocal latest_delivered
            latest_delivered = max([latest_delivered, *(row.number for row in rows)])

        storage = new_bench().storage(None)
        await storage.open(deliver)
        for number in range(100):
            storage.write([Write([put("a")], 0, None)])
            asked = asyncio.ensure_future(storage.catch_up(0))
            await asyncio.sleep(0)
            storage.write([Write([put("b")], 0, None)])
            latest = await asked
            assert number < latest <= latest_delivered
        await storage.close()

    asyncio.run(scenario())


Step = tuple[str, str, bool]
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "compact", "look"]), st.sampled_from("abc"), st.booleans()), max_size=40
)


@given(steps=STEPS, seed=st.integers(0, 2**16))
@settings(max_examples=25, deadline=None)
def test_every_watcher_sees_each_change_once_in_order_or_must_list_again(
    new_bench: NewBench, steps: Sequence[Step], seed: int
) -> None:
    """Watchers start at random revisions, lag at random, some with a selector; a model of the history judges them."""

    async def scenario() -> None:
        random = Random(seed)
        bench = new_bench()
        selection = Selection(labels=parse_labels("on=1"))
        history: list[tuple[int, str, bool | None]] = []
        watchers: list[tuple[int, list[tuple[int, EventKind, str]]]] = []
        async with bench.store(window=Window(seconds=5)) as store:
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
                bench.clock.now += random.choice([0, 0, 1, 3])
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
