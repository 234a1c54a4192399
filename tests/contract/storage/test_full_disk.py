"""A disk that is full: the store says so, deletions pass all the same, and everything does once there is room."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodeagent.apiserver.storage.records import Change, Record, StorageFull, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.apiserver.storages import local_storage
from tests.contract.storage.conftest import Clock
from tests.harness.small_disk import fill, on_small_disk

pytestmark = pytest.mark.kernel

THINGS = "things"
DISK_MEBIBYTES = 32
MANY = 100


def put(name: str, expected: int | None = 0) -> Change:
    body = draft({"metadata": {"name": name, "resourceVersion": "0"}, "padding": "x" * 20_000})
    return Change(THINGS, name, expected, body)


def gone(record: Record) -> Change:
    return Change(THINGS, record.path, record.revision, None, record.body)


def open_store(place: Path, clock: Clock) -> Store:
    return Store(local_storage(place), clock=clock)


def play(place: Path, scenario: Callable[[Clock], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Clock())

    on_small_disk(place, DISK_MEBIBYTES, lambda: asyncio.run(main()))


def is_short(store: Store) -> bool:
    return store.short


async def is_refused(store: Store, name: str) -> bool:
    try:
        await store.commit([put(name)])
    except StorageFull:
        return True
    return False


def test_a_full_disk_is_reported_allows_deletions_and_is_used_again(tmp_path: Path) -> None:
    async def scenario(clock: Clock) -> None:
        async with open_store(tmp_path, clock) as store:
            kept = [record for number in range(MANY) for record in await store.commit([put(f"n{number}")])]
            assert not is_short(store)
            filler = fill(tmp_path)
            while not await is_refused(store, f"more{store.revision}"):
                pass
            assert is_short(store)
            for record in kept:
                await store.commit([gone(record)])
                clock.now += 0.5
                await store.catch_up()
                await store.compact()
            assert is_short(store), "what was kept for deletions is no room"
            assert await is_refused(store, "another")

            filler.unlink()
            await store.catch_up()
            assert not is_short(store)
            await store.commit([put("another")])
            left = set(store.collection(THINGS).records)
        async with open_store(tmp_path, clock) as again:
            assert set(again.collection(THINGS).records) == left
            assert "n0" not in left

    play(tmp_path, scenario)


def test_servers_on_one_directory_keep_the_room_for_deletions_together(tmp_path: Path) -> None:
    async def scenario(clock: Clock) -> None:
        async with open_store(tmp_path, clock) as one, open_store(tmp_path, clock) as other:
            (record,) = await one.commit([put("a")])
            filler = fill(tmp_path)
            while not await is_refused(one, f"more{one.revision}"):
                pass
            assert await is_refused(other, "another"), "it takes the room that the first has made"
            assert is_short(other)
            await other.commit([gone(record)])

            filler.unlink()
            for store in (other, one):
                await store.catch_up()
                assert not is_short(store)

    play(tmp_path, scenario)


def test_a_server_that_starts_on_a_full_disk_says_so(tmp_path: Path) -> None:
    async def scenario(clock: Clock) -> None:
        async with open_store(tmp_path, clock) as store:
            (record,) = await store.commit([put("a")])
            filler = fill(tmp_path)
            while not await is_refused(store, f"more{store.revision}"):
                pass
        async with open_store(tmp_path, clock) as store:
            assert is_short(store)
            await store.commit([gone(record)])
            filler.unlink()
            await store.catch_up()
            assert not is_short(store)

    play(tmp_path, scenario)


def test_a_server_starts_on_a_disk_that_became_full_while_nothing_was_written(tmp_path: Path) -> None:
    async def scenario(clock: Clock) -> None:
        async with open_store(tmp_path, clock) as store:
            (record,) = await store.commit([put("a")])
        filler = fill(tmp_path)
        assert (tmp_path / "store.db-reserve").exists()
        async with open_store(tmp_path, clock) as store:
            assert set(store.collection(THINGS).records) == {"a"}
            assert is_short(store)
            await store.commit([gone(record)])
            filler.unlink()
            await store.catch_up()
            assert not is_short(store)

    play(tmp_path, scenario)


def test_the_size_limit_of_a_store_leaves_the_disk_alone(tmp_path: Path) -> None:
    async def scenario(clock: Clock) -> None:
        async with Store(local_storage(tmp_path, limit_bytes=1024 * 1024), clock=clock) as store:
            while not await is_refused(store, f"more{store.revision}"):
                pass
            assert (tmp_path / "store.db-reserve").stat().st_size > 0

    play(tmp_path, scenario)
