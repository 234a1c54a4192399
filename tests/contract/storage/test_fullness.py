"""A full store can be freed: what leads to less passes, what goes on as before goes on, and nothing else does."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.apiserver.storage.records import Change, Record, StorageFull, draft
from nodeagent.apiserver.storage.store import Store

THINGS = "things"
LIMIT_BYTES = 1024 * 1024
NewBench = Callable[[], Any]


def put(name: str, padding: int, expected: int | None = None, **more: Any) -> Change:
    body = draft({"metadata": {"name": name, "resourceVersion": "0"}, "padding": "x" * padding})
    return Change(THINGS, name, expected, body, **more)


def gone(record: Record) -> Change:
    return Change(THINGS, record.path, record.revision, None, record.body)


async def fill(store: Store, padding: int = 3000) -> list[Record]:
    kept: list[Record] = []
    try:
        for number in range(10_000):
            kept += await store.commit([put(f"n{number}", padding, 0)])
    except StorageFull:
        return kept
    raise AssertionError("it is never full")


def test_everything_in_a_full_store_can_be_deleted_and_then_there_is_room(new_limited_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_limited_bench()
        async with bench.store(limit_bytes=LIMIT_BYTES) as store:
            kept = await fill(store)
            assert store.short
            for record in kept:
                await store.commit([gone(record)])
                bench.clock.now += 0.1
                if int(bench.clock.now * 10) % 10 == 0:
                    await store.compact()
            bench.clock.now += 400
            await store.compact()
            assert not store.short
            assert not store.collection(THINGS).records
            assert len(await fill(store)) >= len(kept) - 3

    asyncio.run(scenario())


def test_large_objects_are_deleted_from_a_full_store_without_room_for_their_content(
    new_limited_bench: NewBench,
) -> None:
    async def scenario() -> None:
        async with new_limited_bench().store(limit_bytes=4 * LIMIT_BYTES) as store:
            for record in await fill(store, 200_000):
                await store.commit([gone(record)])
                event = store.collection(THINGS).events_after(record.revision)[-1]
                assert len(event.record.document()["padding"]) == 200_000

    asyncio.run(scenario())


def test_in_a_full_store_objects_may_become_smaller_but_not_stay_as_large(new_limited_bench: NewBench) -> None:
    async def scenario() -> None:
        async with new_limited_bench().store(limit_bytes=LIMIT_BYTES) as store:
            first = (await fill(store))[0]
            for padding in (3000, 3001):
                with pytest.raises(StorageFull):
                    await store.commit([put("n0", padding, first.revision)])
            with pytest.raises(StorageFull):
                await store.commit([gone(first), put("another", 1)])
            await store.commit([put("n0", 3050, first.revision, frees=True)])
            await store.commit([put("n0", 10)])
            assert store.get(THINGS, "n0") is not None

    asyncio.run(scenario())


def test_heartbeats_go_on_in_a_full_store_and_do_not_fill_it(new_limited_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_limited_bench()
        async with bench.store(limit_bytes=LIMIT_BYTES) as store:
            await store.commit([put("beat", 10, seconds=15)])
            kept = await fill(store)
            revision = store.revision
            for _ in range(2000):
                (record,) = await store.commit([put("beat", 10, seconds=15)])
            assert record.revision < revision == store.revision
            bench.clock.now += 14
            await store.commit([put("beat", 10, seconds=15)])
            bench.clock.now += 14
            await store.catch_up()
            assert store.get(THINGS, "beat") is not None
            for one in kept:
                await store.commit([gone(one)])

    asyncio.run(scenario())


def test_a_full_store_opens_again_as_full(new_durable_limited_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_durable_limited_bench()
        async with bench.store(limit_bytes=LIMIT_BYTES) as store:
            kept = await fill(store)
        async with bench.store(limit_bytes=LIMIT_BYTES) as store:
            with pytest.raises(StorageFull):
                await store.commit([put("more", 3000)])
            assert set(store.collection(THINGS).records) == {record.path for record in kept}
            await store.commit([gone(kept[0])])

    asyncio.run(scenario())
