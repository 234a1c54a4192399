"""A snapshot is a storage of its own, as of one revision."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodeagent.apiserver.storage.records import Change, draft
from nodeagent.apiserver.storage.store import Store

THINGS = "things"


def put(name: str) -> Change:
    return Change(THINGS, name, 0, draft({"metadata": {"name": name, "resourceVersion": "0"}}))


def test_a_snapshot_is_a_storage(new_bench: Callable[[], Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = new_bench()
        copied = str(tmp_path / "copy.db")
        async with bench.store() as store:
            (first,) = await store.commit([put("a")])
            await store.snapshot(copied)
            await store.commit([put("b")])
        async with Store(bench.restored(copied), clock=bench.clock) as copy:
            assert list(copy.collection(THINGS).records) == ["a"]
            assert copy.revision == first.revision
            (again,) = await copy.commit([put("b")])
            assert again.revision > first.revision

    asyncio.run(scenario())


def test_a_snapshot_is_taken_while_others_write(new_bench: Callable[[], Any], tmp_path: Path) -> None:
    """Two objects are always written together: a snapshot has both or neither."""

    async def scenario() -> None:
        bench = new_bench()
        copied = str(tmp_path / "copy.db")
        async with bench.store() as store:

            async def write() -> None:
                for number in range(50):
                    await store.commit([put(f"left/{number}"), put(f"right/{number}")])

            await asyncio.gather(write(), store.snapshot(copied))
        async with Store(bench.restored(copied), clock=bench.clock) as copy:
            collection = copy.collection(THINGS)
            left, right = ([path.partition("/")[2] for path in collection.paths(side)] for side in ("left/", "right/"))
            assert left == right

    asyncio.run(scenario())
