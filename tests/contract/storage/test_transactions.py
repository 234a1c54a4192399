"""Compare and swap: a transaction is carried out whole, at revisions of one sequence, or not at all."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.apiserver.storage.records import Change, EventKind, Precondition, StorageFull, draft

THINGS = "things"
NewBench = Callable[[], Any]


def body(name: str, value: int = 0, padding: int = 0) -> bytes:
    return draft({"metadata": {"name": name, "resourceVersion": "0"}, "value": value, "padding": "x" * padding})


def put(name: str, expected: int | None = None, value: int = 0, padding: int = 0) -> Change:
    return Change(THINGS, name, expected, body(name, value, padding))


def gone(name: str, expected: int | None = None) -> Change:
    return Change(THINGS, name, expected, None, body(name))


def test_a_record_carries_the_revision_it_was_written_at(new_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_bench().store() as store:
            (first,) = await store.commit([put("a")])
            (second,) = await store.commit([put("a", first.revision, value=1)])
            assert 0 < first.revision < second.revision == store.revision
            record = store.get(THINGS, "a")
            assert record.document()["metadata"]["resourceVersion"] == str(second.revision)
            assert record.document()["value"] == 1

    asyncio.run(scenario())


def test_a_transaction_whose_assumption_is_wrong_writes_nothing(new_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_bench().store() as store:
            (first,) = await store.commit([put("a", 0)])
            for change in (put("a", 0), put("a", first.revision + 1), gone("a", first.revision + 1), put("c", 7)):
                with pytest.raises(Precondition) as found:
                    await store.commit([put("b", 0), change])
                assert found.value.change == change
                assert found.value.actual == (0 if change.path == "c" else first.revision)
            assert set(store.collection(THINGS).records) == {"a"}
            assert store.revision == first.revision

    asyncio.run(scenario())


def test_after_a_deletion_the_name_is_free_and_the_revision_is_not_the_old_one(new_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_bench().store() as store:
            (first,) = await store.commit([put("a", 0)])
            (last,) = await store.commit([gone("a", first.revision)])
            (again,) = await store.commit([put("a", 0)])
            assert first.revision < last.revision < again.revision
            kinds = [event.kind for event in store.collection(THINGS).events_after(0)]
            assert kinds == [EventKind.ADDED, EventKind.DELETED, EventKind.ADDED]

    asyncio.run(scenario())


def test_of_concurrent_creations_one_wins(new_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_bench().store() as store:
            results = await asyncio.gather(*(store.commit([put("a", 0)]) for _ in range(20)), return_exceptions=True)
            assert sum(not isinstance(result, Precondition) for result in results) == 1

    asyncio.run(scenario())


def test_of_concurrent_increments_none_is_lost(new_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_bench().store() as store:
            await store.commit([put("a", 0)])

            async def increment() -> None:
                while True:
                    record = store.get(THINGS, "a")
                    try:
                        await store.commit([put("a", record.revision, record.document()["value"] + 1)])
                    except Precondition:
                        continue
                    return

            await asyncio.gather(*(increment() for _ in range(10)))
            assert store.get(THINGS, "a").document()["value"] == 10

    asyncio.run(scenario())


def test_who_is_woken_by_a_transaction_sees_all_of_it(new_bench: NewBench) -> None:
    async def scenario() -> None:
        seen = []
        async with new_bench().store() as store:
            things, others = store.collection(THINGS), store.collection("others")
            things.register(lambda: seen.append((set(things.records), set(others.records))))
            await store.commit([put("a"), Change("others", "b", 0, body("b")), put("c")])
            assert seen == [({"a", "c"}, {"b"})]

    asyncio.run(scenario())


def test_a_caller_that_waited_for_a_commit_can_read_it(new_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_bench().store() as store:

            async def write(name: str) -> None:
                (record,) = await store.commit([put(name, 0)])
                assert store.get(THINGS, name).revision == record.revision
                assert store.revision >= record.revision

            await asyncio.gather(*(write(f"n{number}") for number in range(50)))

    asyncio.run(scenario())


def test_a_full_store_says_so_and_stays_whole(new_limited_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_limited_bench().store(limit_bytes=256 * 1024) as store:
            stored = 0

            async def fill() -> None:
                nonlocal stored
                for number in range(1000):
                    await store.commit([put(f"n{number}", 0, padding=10_000)])
                    stored += 1

            with pytest.raises(StorageFull):
                await fill()
            assert 0 < stored == len(store.collection(THINGS).records)
            await store.commit([gone("n0")])

    asyncio.run(scenario())


def test_closing_finishes_what_was_asked_for(new_durable_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as store:
            writing = asyncio.ensure_future(store.commit([put("a")]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        writing.cancel()
        async with bench.store() as store:
            assert set(store.collection(THINGS).records) == {"a"}

    asyncio.run(scenario())


def test_two_servers_see_each_other_and_write_one_sequence(new_durable_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as one, bench.store() as two:
            assert one.shared
            await one.commit([put("a", 0)])
            with pytest.raises(Precondition):
                await two.commit([put("a", 0)])
            assert two.get(THINGS, "a") is not None
            await two.commit([put("b", 0)])
            await one.catch_up()
            assert one.get(THINGS, "b") is not None
            assert one.revision == two.revision

            async def fill(store: Any, own: str) -> None:
                for number in range(20):
                    await store.commit([put(f"{own}{number}", 0)])

            await asyncio.gather(fill(one, "x"), fill(two, "y"))
            await one.catch_up()
            await two.catch_up()
            histories = [
                [(event.revision, event.record.path) for event in store.collection(THINGS).events_after(0)]
                for store in (one, two)
            ]
            assert histories[0] == histories[1]
            assert len({revision for revision, _ in histories[0]}) == 42

    asyncio.run(scenario())


def test_a_read_of_the_latest_revision_shows_writes_of_other_servers(
    new_durable_bench: NewBench,
) -> None:
    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as one, bench.store() as two:
            for number in range(20):
                writer, reader = (one, two) if number % 2 else (two, one)
                (written,) = await writer.commit([put("a", value=number)])
                await reader.latest()
                assert reader.get(THINGS, "a").revision == written.revision
                assert reader.revision >= written.revision
            await one.commit([gone("a")])
            await two.latest()
            assert two.get(THINGS, "a") is None

    asyncio.run(scenario())
