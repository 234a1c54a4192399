"""The log in SQLite: what is its own beside what every storage must do (tests/contract/storage)."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from nodeagent.apiserver.storage import sqlite_file
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import (
    Change,
    HistoryLost,
    Revision,
    StorageFailed,
    draft,
)
from nodeagent.apiserver.storage.sqlite_file import check, connect, copy_to, read_revisions
from nodeagent.apiserver.storage.store import Collection, Store
from tests.harness.effort import examples

THINGS = "things"


def put(name: str, seconds: float | None = None) -> Change:
    return Change(THINGS, name, None, draft({"metadata": {"name": name, "resourceVersion": "0"}}), seconds=seconds)


class Clock:
    """Time that passes on command."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def in_the_loop(patch: pytest.MonkeyPatch, no_memory: Callable[..., None]) -> None:
    patch.setattr(Collection, "put", no_memory)


def between_thread_and_loop(patch: pytest.MonkeyPatch, no_memory: Callable[..., None]) -> None:
    patch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", no_memory)


@pytest.mark.parametrize("fails", [in_the_loop, between_thread_and_loop])
def test_a_change_that_is_written_and_cannot_be_shown_ends_the_store(
    tmp_path: Path, fails: Callable[[pytest.MonkeyPatch, Callable[..., None]], None]
) -> None:
    """Watchers would miss it for good, and the writer would wait forever."""
    path = str(tmp_path / "store")
    tried: list[object] = []

    def no_memory(*arguments: object) -> None:
        tried.append(arguments)
        raise MemoryError

    async def scenario() -> None:
        async with Store(Log(path), clock=Clock()) as store, asyncio.timeout(60):
            await store.commit([put("one")])
            await store.catch_up()
            with pytest.MonkeyPatch.context() as patch:
                fails(patch, no_memory)
                writing = asyncio.create_task(store.commit([put("two")]))
                while not tried:  # noqa: ASYNC110  # what fails is in another thread, or is the loop's own
                    await asyncio.sleep(0.01)
            with pytest.raises(HistoryLost, match="MemoryError"):
                await store.catch_up()
            writing.cancel()
        async with Store(Log(path), clock=Clock()) as again:
            assert set(again.collection(THINGS).records) == {"one", "two"}

    asyncio.run(scenario())


def test_writes_of_others_during_a_start_are_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counted as read by the number of the latest revision, and was missing for good."""
    path = str(tmp_path / "store")

    async def scenario() -> None:
        async with Store(Log(path), clock=Clock()) as store:
            await store.commit([put("before")])
            loop = asyncio.get_running_loop()

            def read_and_let_another_write(connection: sqlite3.Connection, after: int = 0) -> list[Revision]:
                rows = read_revisions(connection, after)
                monkeypatch.undo()
                asyncio.run_coroutine_threadsafe(store.commit([put("meanwhile")]), loop).result(60)
                return rows

            monkeypatch.setattr(sqlite_file, "read_revisions", read_and_let_another_write)
            async with Store(Log(path), clock=Clock()) as late:
                await late.catch_up()
                assert set(late.collection(THINGS).records) == {"before", "meanwhile"}

    asyncio.run(scenario())


def test_a_compaction_by_others_during_a_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "store")

    async def scenario() -> None:
        async with Store(Log(path), clock=Clock()) as store, Store(Log(path), clock=Clock()) as late:
            await store.commit([put("gone")])
            await late.catch_up()
            loop = asyncio.get_running_loop()
            forgetful = Log(path)
            await forgetful.open(lambda *_: None)

            async def delete_and_forget() -> None:
                await store.commit([Change(THINGS, "gone", None, None)])
                await store.commit([put("after")])
                await forgetful.compact(store.revision)

            def look_too_late(connection: sqlite3.Connection, after: int = 0) -> list[Revision]:
                monkeypatch.undo()
                asyncio.run_coroutine_threadsafe(delete_and_forget(), loop).result(60)
                return read_revisions(connection, after)

            monkeypatch.setattr(sqlite_file, "read_revisions", look_too_late)
            with pytest.raises(HistoryLost):
                await late.catch_up()
            await forgetful.close()

    asyncio.run(scenario())


def test_a_store_outlives_those_who_no_longer_wait(tmp_path: Path) -> None:
    """A request that is cancelled before its turn, as at every shutdown, is passed over."""
    path = str(tmp_path / "store")

    async def scenario() -> None:
        async with Store(Log(path), clock=Clock()) as store:
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
            async with asyncio.timeout(60):
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
        async with Store(Log(str(path)), clock=Clock()):
            pass

    for path in (other, text):
        with pytest.raises(StorageFailed):
            asyncio.run(scenario(path))


def test_a_file_from_before_objects_could_have_an_end_is_taken_over(tmp_path: Path) -> None:
    path = str(tmp_path / "s.db")
    clock = Clock()

    async def scenario() -> None:
        async with Store(Log(path), clock=clock) as store:
            await store.commit([put("a")])
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE lease")
        connection.close()
        async with Store(Log(path), clock=clock) as store:
            await store.commit([put("b", seconds=10)])
            clock.now += 11
            await store.catch_up()
            assert list(store.collection(THINGS).records) == ["a"]

    asyncio.run(scenario())


def test_a_snapshot_made_from_outside_is_a_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Store(Log(str(tmp_path / "s.db")), clock=Clock()) as store:
            await store.commit([put("a")])
            await store.snapshot(str(tmp_path / "copy.db"))
            await store.commit([put("b")])
        async with Store(Log(str(tmp_path / "copy.db")), clock=Clock()) as copy:
            assert list(copy.collection(THINGS).records) == ["a"]

    asyncio.run(scenario())
    connection = connect(str(tmp_path / "s.db"))
    copy_to(connection, str(tmp_path / "second.db"))
    connection.close()
    second = connect(str(tmp_path / "second.db"))
    check(second)
    second.close()


WRITERS = textwrap.dedent(
    """
    import asyncio, os, sys, time
    from nodeagent.apiserver.storage.log import Log
    from nodeagent.apiserver.storage.records import Change, draft
    from nodeagent.apiserver.storage.store import Collection, Store

    async def main(path):
        async with Store(Log(path), clock=time.time) as store:
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

KILLS = examples(20)


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
        async with Store(Log(str(path)), clock=Clock()) as store:
            return set(store.collection(THINGS).records)

    return asyncio.run(read())


def test_acknowledged_writes_survive_kills(writers: "subprocess.Popen[str]", tmp_path: Path) -> None:
    random = Random(11)
    acknowledged: set[str] = set()
    for number in range(KILLS):
        acknowledged |= set(crash(writers, tmp_path / "s.db", random))
        if number % 20 == 19 or number < 8:
            assert acknowledged <= names_in(tmp_path / "s.db")
