"""Objects with an end: they go by themselves unless written again in time. Servers say so that they live."""

import asyncio
from collections.abc import Callable
from typing import Any

from nodeagent.controlplane.storage.records import Change, EventKind, draft

LIVING = "living"
NewBench = Callable[[], Any]


def said(name: str, seconds: float | None, value: int = 0) -> Change:
    body = draft({"metadata": {"name": name, "resourceVersion": "0"}, "value": value})
    return Change(LIVING, name, None, body, seconds=seconds)


def test_it_goes_when_its_time_is_up_and_no_sooner(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            (record,) = await store.commit([said("a", 10, value=7)])
            await store.commit([said("stays", None)])
            bench.clock.now += 9
            await store.catch_up()
            assert store.get(LIVING, "a") is not None
            bench.clock.now += 2
            await store.catch_up()
            assert set(store.collection(LIVING).records) == {"stays"}
            event = store.collection(LIVING).events_after(0)[-1]
            assert event.kind is EventKind.DELETED
            assert event.revision == store.revision > record.revision
            assert event.record.document()["value"] == 7
            (again,) = await store.commit([said("a", 10)])
            assert again.revision > event.revision

    asyncio.run(scenario())


def test_written_again_it_stays(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            for _ in range(4):
                await store.commit([said("a", 10)])
                bench.clock.now += 6
                await store.catch_up()
                assert store.get(LIVING, "a") is not None

    asyncio.run(scenario())


def test_written_without_an_end_it_has_none(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            await store.commit([said("a", 10)])
            await store.commit([said("a", None)])
            bench.clock.now += 100
            await store.catch_up()
            assert store.get(LIVING, "a") is not None

    asyncio.run(scenario())


def test_deleted_in_time_it_is_deleted_once(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            await store.commit([said("a", 10)])
            await store.commit([Change(LIVING, "a", None, None)])
            await store.commit([said("a", None)])
            bench.clock.now += 100
            await store.catch_up()
            assert store.get(LIVING, "a") is not None

    asyncio.run(scenario())


def test_it_outlives_the_server_that_wrote_it_and_the_others_see_it_go(new_durable_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as other:
            async with bench.store() as dying:
                await dying.commit([said("a", 10)])
            await other.catch_up()
            assert other.get(LIVING, "a") is not None
            bench.clock.now += 11
        async with bench.store() as one, bench.store() as two:
            await asyncio.gather(one.catch_up(), two.catch_up())
            await asyncio.gather(one.catch_up(), two.catch_up())
            assert one.get(LIVING, "a") is two.get(LIVING, "a") is None
            assert one.revision == two.revision

    asyncio.run(scenario())


def test_another_server_may_take_the_end_away(new_durable_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as one, bench.store() as two:
            await one.commit([said("a", 10)])
            await two.commit([said("a", None)])
            bench.clock.now += 100
            await one.catch_up()
            await two.catch_up()
            assert one.get(LIVING, "a") is not None

    asyncio.run(scenario())
