"""The durable log: SQLite in WAL mode, written by one thread, many transactions per commit.

A transaction is acknowledged after the commit that contains it returned, so a process killed at any moment loses
nothing acknowledged; with `synchronous=FULL` neither does a machine losing power. Several processes may share one file:
each write first reads what the others wrote (BEGIN IMMEDIATE makes that exact), so revisions stay one sequence. A caller that reads
looks first whether anybody else has written (`Progress`), so that all show what one has acknowledged.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeVar

from nodeagent.apiserver.storage.disk_reserve import DiskReserve
from nodeagent.apiserver.storage.port import Deliver, Loaded, Settled, Write
from nodeagent.apiserver.storage.records import (
    Change,
    LeftBehind,
    Precondition,
    Revision,
    StorageFailed,
    StorageFull,
    assemble,
)
from nodeagent.apiserver.storage.sqlite_file import (
    PAGE_BYTES,
    Progress,
    check_structure,
    connect,
    copy_to,
    examine_log,
    read_revisions,
)
from nodeagent.apiserver.storage.sqlite_writes import compact, insert, keep_leases, roll_back, without_body
from nodeagent.apiserver.storage.write_ahead import Ending

logger = logging.getLogger(__name__)

_BATCH: Final = 256
_LARGEST_RESERVE_BYTES: Final = 8 * 1024 * 1024


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Call:
    carry_out: Callable[[sqlite3.Connection], None]


class Log:
    """A Storage: one SQLite file (or `:memory:`) and the thread that owns its connection."""

    def __init__(self, path: str, *, limit_bytes: int | None = None, reserve: DiskReserve | None = None) -> None:
        """reserve: the room on the disk that is kept for deletions; None: none is."""
        self._path = path
        self._limit_bytes = limit_bytes
        self._reserve = reserve
        self._deliver: Deliver = _deliver_to_nobody
        self._queue: SimpleQueue[Sequence[Write] | _Call | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="store", daemon=True)
        self._opened: Future[Loaded] = Future()
        self._versions: dict[tuple[str, str], int] = {}
        self._leased: set[tuple[str, str]] = set()
        self._counter = 0
        self._progress: Progress | None = None
        self._delivered = 0
        self.short = False
        """There is room only for what leads to less."""

    @property
    def shared(self) -> bool:
        """A file is; memory is not."""
        return self._path != ":memory:"

    @property
    def remote(self) -> bool:
        """What others wrote is read when somebody asks, by `latest` and `catch_up`."""
        return False

    @property
    def reachable(self) -> bool:
        """It is here."""
        return True

    @property
    def trouble(self) -> str:
        """None."""
        return ""

    async def open(self, deliver: Deliver) -> Loaded:
        """Starts the thread and reads the log. Raises StorageFailed when the file is not a store."""
        loop = asyncio.get_running_loop()

        def taken(rows: Sequence[Revision], settled: Sequence[tuple[object, Settled]]) -> None:
            if rows:
                self._delivered = rows[-1].number
            deliver(rows, settled)

        self._deliver = lambda rows, settled: _hand_over(loop, taken, rows, settled)
        self._thread.start()
        loaded = await asyncio.to_thread(self._opened.result)
        self._delivered = max(self._delivered, loaded.counter)
        return loaded

    async def close(self) -> None:
        """Finishes what was asked for and closes the file."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._progress is not None:
            self._progress.close()

    def write(self, writes: Sequence[Write]) -> None:
        """Each transaction is carried out whole or not at all."""
        self._queue.put(writes)

    async def latest(self) -> int:
        """A look at the file, and only where there is more than was delivered here, a turn of the thread."""
        if self._progress is None:
            return self._delivered
        try:
            written: int | None = self._progress.revision()
        except sqlite3.Error:
            written = None  # held up, or damaged: the thread waits, or finds out
        if written is None or written > self._delivered:
            await self._call(lambda connection: self._read_up_to(connection, written))
        return self._delivered

    async def catch_up(self, now: int) -> int:
        """Removes objects whose time is up; reads what other processes wrote to the file since the last look."""
        return await self._call(lambda connection: self._look_around(connection, now))

    async def compact(self, floor: int) -> None:
        """Forgets every revision that was superseded or deleted at or before `floor`."""
        await self._call(lambda connection: self._forget(connection, floor))

    async def snapshot(self, path: str) -> None:
        """SQLite's online backup. Raises StorageFailed, StorageFull."""
        await self._call(lambda connection: copy_to(connection, path))

    async def _call(self, function: Callable[[sqlite3.Connection], _Result]) -> _Result:
        done: Future[_Result] = Future()
        self._queue.put(_Call(lambda connection: _settle_call(done, function, connection)))
        return await asyncio.wrap_future(done)

    def _run(self) -> None:
        try:
            ending = examine_log(self._path)
            connection = connect(self._path, self._limit_bytes)
            loaded = self._load(connection)
            self.short = self._is_short_again(connection)
            self._progress = Progress(self._path) if self.shared else None
        except StorageFailed as error:
            self._opened.set_exception(error)
            return
        except (sqlite3.Error, OSError) as error:
            self._opened.set_exception(StorageFailed(f"{self._path}: {error}"))
            return
        if ending is Ending.TORN:
            logger.warning(
                "the store was left in the middle of a transaction, which is not in effect path=%s revision=%d",
                self._path,
                loaded.counter,
            )
        self._opened.set_result(loaded)
        while True:
            request = self._queue.get()
            writes: list[Write] = []
            while isinstance(request, list | tuple):
                # Everything queued up to the next call: one commit pays for all of it.
                writes.extend(request)
                try:
                    request = self._queue.get_nowait() if len(writes) < _BATCH else ()
                except Empty:
                    request = ()
                if not request:
                    break
            if writes:
                self._commit(connection, writes)
            if isinstance(request, _Call):
                request.carry_out(connection)
            elif request is None:
                break
        connection.close()

    def _load(self, connection: sqlite3.Connection) -> Loaded:
        check_structure(connection)
        connection.execute("BEGIN")  # others may be writing: all of it as it was at one moment
        try:
            rows = read_revisions(connection)
            facts = dict(connection.execute("SELECT name, value FROM fact"))
            self._leased = set(connection.execute("SELECT collection, path FROM lease"))
        finally:
            roll_back(connection)
        self._note(rows)
        self._counter = max(self._counter, facts["counter"])
        return Loaded(rows, facts["floor"], self._counter)

    def _note(self, rows: Sequence[Revision]) -> None:
        for row in rows:
            if row.deleted:
                self._versions.pop((row.collection, row.path), None)
            else:
                self._versions[(row.collection, row.path)] = row.number
            self._counter = row.number

    def _read_up_to(self, connection: sqlite3.Connection, written: int | None) -> None:
        """Delivers what others wrote up to this revision, all of it for None; what was noted has been delivered."""
        if written is None or written > self._counter:
            self._read_foreign(connection)

    def _read_foreign(self, connection: sqlite3.Connection) -> None:
        found = read_revisions(connection, self._counter)
        # Only now: what is forgotten from here on has been read.
        (floor,) = connection.execute("SELECT value FROM fact WHERE name = 'floor'").fetchone()
        if floor > self._counter:
            raise LeftBehind(
                f"others have forgotten the history from revision {self._counter} to {floor}, which this server has not read"
            )
        if found:
            self._note(found)
            self._leased = set(connection.execute("SELECT collection, path FROM lease"))
            self._deliver(found, ())

    def _look_around(self, connection: sqlite3.Connection, now: int) -> int:
        """The latest revision, delivered. Rereading is cheap; only where a time is up is there anything to write."""
        self._read_foreign(connection)
        self.short = self._is_short_again(connection)
        over = "SELECT collection, path FROM lease WHERE until <= ?"
        if self._leased and connection.execute(over, (now,)).fetchone():
            try:
                connection.execute("BEGIN IMMEDIATE")
                self._read_foreign(connection)
                ended = connection.execute(over, (now,)).fetchall()
                present = [key for key in ended if self._versions.get(key)]
                rows = [
                    Revision(
                        number, collection, path, assemble(self._body(connection, collection, path), number), True, now
                    )
                    for number, (collection, path) in enumerate(present, self._counter + 1)
                ]
                connection.executemany("DELETE FROM lease WHERE collection = ? AND path = ?", ended)
                insert(connection, rows, self._counter + len(rows))
                connection.execute("COMMIT")
            except sqlite3.Error:
                roll_back(connection)
                raise
            self._leased -= set(ended)
            self._note(rows)
            self._deliver(rows, ())
        return self._counter

    def _body(self, connection: sqlite3.Connection, collection: str, path: str) -> bytes:
        number = self._versions[(collection, path)]
        (body,) = connection.execute("SELECT body FROM revision WHERE number = ?", (number,)).fetchone()
        return bytes(body)

    def _commit(self, connection: sqlite3.Connection, writes: Sequence[Write]) -> None:
        try:
            settled, rows = self._carry_out(connection, writes)
        except Exception as error:  # noqa: BLE001 - whatever it is must not end the thread: nobody would be answered any more
            roll_back(connection)
            failure = _failure(error)
            if isinstance(failure, StorageFull) and not self.short:
                # What leads to less may still fit by itself.
                self.short = True
                if self._reserve is not None:
                    self._reserve.release()
                self._commit(connection, writes)
                return
            self._deliver((), [(write.token, failure) for write in writes])
            return
        self._note(rows)
        self._deliver(rows, settled)

    def _carry_out(
        self, connection: sqlite3.Connection, writes: Sequence[Write]
    ) -> tuple[list[tuple[object, Settled]], list[Revision]]:
        """One transaction of SQLite: how each write ended, and the rows of all."""
        settled: list[tuple[object, Settled]] = []
        rows: list[Revision] = []
        connection.execute("BEGIN IMMEDIATE")
        self._read_foreign(connection)
        self.short = self.short or (self._reserve is not None and not self._reserve.held)
        staged: dict[tuple[str, str], int] = {}
        leases: dict[tuple[str, str], float | None] = {}
        counter = self._counter
        for write in writes:
            refused = self._broken(write.changes, staged) or self._too_much(connection, write.changes)
            if refused is not None:
                settled.append((write.token, refused))
                continue
            leases |= self._leases_of(write)
            same = self._unchanged(connection, write.changes, staged)
            if same is not None:
                settled.append((write.token, [same]))
                continue
            written = [_revision(change, counter + n, write.at) for n, change in enumerate(write.changes, 1)]
            counter += len(written)
            staged |= {(row.collection, row.path): 0 if row.deleted else row.number for row in written}
            rows += written
            settled.append((write.token, written))
        insert(connection, [without_body(row) for row in rows] if self.short else rows, counter)
        keep_leases(connection, leases)
        short = self._is_short(connection)
        connection.execute("COMMIT")
        self.short = short
        self._leased = (self._leased | {key for key, until in leases.items() if until is not None}) - {
            key for key, until in leases.items() if until is None
        }
        return settled, rows

    def _forget(self, connection: sqlite3.Connection, floor: int) -> None:
        compact(connection, floor)
        self.short = self._is_short_again(connection)

    def _is_short(self, connection: sqlite3.Connection) -> bool:
        """What is left, of the limit or of the disk, is the reserve."""
        return (self._reserve is not None and not self._reserve.held) or self._near_limit(connection)

    def _is_short_again(self, connection: sqlite3.Connection) -> bool:
        """The same, after the disk's reserve was taken back where it has the room."""
        return (self._reserve is not None and not self._reserve.hold()) or self._near_limit(connection)

    def _near_limit(self, connection: sqlite3.Connection) -> bool:
        if self._limit_bytes is None:
            return False
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        reserve = min(self._limit_bytes // 4, _LARGEST_RESERVE_BYTES)
        return bool((pages - free) * PAGE_BYTES > self._limit_bytes - reserve)

    def _too_much(self, connection: sqlite3.Connection, changes: Sequence[Change]) -> StorageFull | None:
        """In the reserve, only what leads to less, and what was there before and goes on."""
        if not self.short or all(self._leads_to_less(connection, change) for change in changes):
            return None
        return StorageFull("what is left is kept for deletions")

    def _leads_to_less(self, connection: sqlite3.Connection, change: Change) -> bool:
        if change.body is None or change.frees:
            return True
        key = (change.collection, change.path)
        if not self._versions.get(key):
            return False
        return key in self._leased or len(change.body) < len(self._body(connection, *key))

    def _unchanged(
        self, connection: sqlite3.Connection, changes: Sequence[Change], staged: Mapping[tuple[str, str], int]
    ) -> Revision | None:
        """The record of an object that is only to stay for longer: that is no new revision."""
        if len(changes) != 1:
            return None
        (change,) = changes
        key = (change.collection, change.path)
        number = self._versions.get(key, 0)
        if change.seconds is None or change.body is None or key not in self._leased or key in staged or not number:
            return None
        body = self._body(connection, *key)
        return Revision(number, *key, body, deleted=False, at=0) if body == assemble(change.body, number) else None

    def _leases_of(self, write: Write) -> dict[tuple[str, str], float | None]:
        """Until when each object of a transaction stays by itself; None: it had an end and has none now."""
        found: dict[tuple[str, str], float | None] = {}
        for change in write.changes:
            key = (change.collection, change.path)
            if change.seconds is not None and change.body is not None:
                found[key] = write.at + change.seconds
            elif key in self._leased:
                found[key] = None
        return found

    def _broken(self, changes: Sequence[Change], staged: dict[tuple[str, str], int]) -> Precondition | None:
        for change in changes:
            key = (change.collection, change.path)
            actual = staged[key] if key in staged else self._versions.get(key, 0)
            if change.expected is not None and change.expected != actual:
                return Precondition(change, actual)
        return None


def _deliver_to_nobody(_: Sequence[Revision], __: Sequence[tuple[object, Settled]]) -> None:
    """Before the log is open."""


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    deliver: Deliver,
    rows: Sequence[Revision],
    settled: Sequence[tuple[object, Settled]],
) -> None:
    loop.call_soon_threadsafe(deliver, rows, settled)


def _revision(change: Change, number: int, at: int) -> Revision:
    deleted = change.body is None
    body = change.last if change.body is None else change.body
    return Revision(
        number, change.collection, change.path, assemble(body or b"{}", number) if body else b"", deleted, at
    )


def _settle_call(
    done: "Future[_Result]", function: Callable[[sqlite3.Connection], _Result], connection: sqlite3.Connection
) -> None:
    if not done.set_running_or_notify_cancel():
        return  # the caller is gone
    try:
        done.set_result(function(connection))
    except Exception as error:  # noqa: BLE001 - the caller receives the error; the thread goes on
        done.set_exception(_failure(error))


def _failure(error: Exception) -> Exception:
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StorageFull(str(error))
    return error if isinstance(error, StorageFailed) else StorageFailed(str(error) or type(error).__name__)
