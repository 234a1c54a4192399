"""Objects with an end: they go by themselves unless written again in time. Servers say so that they live."""

import asyncio
from collections.abc import Callable
from typing import Any

from nodeagent.apiserver.storage.records import Change, EventKind, draft

LIVING = "living"
NewBench = Callable[[], Any]


def said(name: str, seconds: float | None, value: int = 0) -> Change:
    body = draft({"metadata": {"name": name, "resourceVersion": "0"}, "value": value})
    return Change(LIVING, name, None, body, seconds=seconds)


async def gone(bench: Any, store: Any, name: str) -> None:
    """Waits until an object has ended."""
    async with asyncio.timeout(60):
        while store.get(LIVING, name) is not None:
            await bench.wait(store)


def test_an_object_expires_at_its_time_and_no_sooner(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            began = bench.now()
            (record,) = await store.commit([said("a", bench.span, value=7)])
            await store.commit([said("stays", None)])
            await gone(bench, store, "a")
            assert bench.now() - began >= bench.span
            assert set(store.collection(LIVING).records) == {"stays"}
            event = store.collection(LIVING).events_after(0)[-1]
            assert event.kind is EventKind.DELETED
            assert event.revision == store.revision > record.revision
            assert event.record.document()["value"] == 7
            (again,) = await store.commit([said("a", bench.span)])
            assert again.revision > event.revision

    asyncio.run(scenario())


def test_written_again_it_stays(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            for _ in range(3):
                latest = bench.now()
                await store.commit([said("a", bench.span)])
                for _ in range(6):
                    await bench.wait(store)
            await gone(bench, store, "a")
            assert bench.now() - latest >= bench.span

    asyncio.run(scenario())


def test_written_again_and_changed_it_stays(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            for value in range(3):
                latest = bench.now()
                await store.commit([said("a", bench.span, value)])
                for _ in range(6):
                    await bench.wait(store)
            await gone(bench, store, "a")
            assert bench.now() - latest >= bench.span

    asyncio.run(scenario())


def test_a_write_of_the_same_content_makes_no_revision(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            (first,) = await store.commit([said("a", 60 * bench.span)])
            (second,) = await store.commit([said("a", 60 * bench.span)])
            assert second.revision == first.revision == store.revision

    asyncio.run(scenario())


def test_an_object_written_without_an_expiry_has_no_lease(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            await store.commit([said("a", bench.span)])
            await store.commit([said("a", None)])
            await store.commit([said("later", bench.span)])
            await gone(bench, store, "later")
            assert store.get(LIVING, "a") is not None

    asyncio.run(scenario())


def test_deleted_in_time_it_is_deleted_once(new_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_bench()
        async with bench.store() as store:
            await store.commit([said("a", 60 * bench.span)])
            await store.commit([Change(LIVING, "a", None, None)])
            await store.commit([said("a", None)])
            await store.commit([said("later", bench.span)])
            await gone(bench, store, "later")
            assert store.get(LIVING, "a") is not None

    asyncio.run(scenario())


def test_a_lease_outlives_its_server_and_the_others_see_the_object_expire(new_durable_bench: NewBench) -> None:
    async def scenario() -> None:
        bench = new_durable_bench()
        async with bench.store() as other:
            began = bench.now()
            async with bench.store() as dying:
                await dying.commit([said("a", bench.span)])
            await other.catch_up()
            assert other.get(LIVING, "a") is not None or bench.now() - began >= bench.span
            await gone(bench, other, "a")
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
            await one.commit([said("a", bench.span)])
            await two.commit([said("a", None)])
            await two.commit([said("later", bench.span)])
            await one.catch_up()
            await gone(bench, one, "later")
            await two.catch_up()
            assert one.get(LIVING, "a") is not None
            assert two.get(LIVING, "a") is not None

    asyncio.run(scenario())
