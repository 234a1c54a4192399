"""The durable log: SQLite in WAL mode, written by one thread, with many transactions per commit.

A transaction is acknowledged after the commit that contains it returned, so killing the process loses nothing acknowledged;
with `synchronous=FULL` neither does a power failure. Several processes may share one file: each write first reads what the
others wrote (BEGIN IMMEDIATE makes that exact), so revisions stay one sequence. Before a read, `Progress` checks whether
another process has written, so that all show what one has acknowledged.
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

from nodeagent.apiserver.storage import sqlite_file
from nodeagent.apiserver.storage.disk_reserve import DiskReserve
from nodeagent.apiserver.storage.port import Deliver, Loaded, Settled, Write
from nodeagent.apiserver.storage.records import (
    Change,
    HistoryLost,
    Precondition,
    Revision,
    StorageFailed,
    StorageFull,
    assemble,
)
from nodeagent.apiserver.storage.sqlite_writes import compact, insert, keep_leases, roll_back, without_body
from nodeagent.apiserver.storage.write_ahead import LogEnding

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
        """reserve: the disk space that is kept for deletions; None: no reserve."""
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
        self._progress: sqlite_file.Progress | None = None
        self._delivered = 0
        self._lost: HistoryLost | None = None
        self.short = False
        """Whether only writes that free space are accepted."""

    @property
    def shared(self) -> bool:
        """Whether other processes may write to it: yes, unless it is in memory."""
        return self._path != ":memory:"

    @property
    def remote(self) -> bool:
        """False: revisions of other processes are read only by `latest` and `catch_up`."""
        return False

    @property
    def reachable(self) -> bool:
        """True: the storage is local."""
        return True

    @property
    def failure_reason(self) -> str:
        """Empty: the storage is local."""
        return ""

    async def open(self, deliver: Deliver) -> Loaded:
        """Starts the thread and reads the log. Raises StorageFailed if the file is not a store."""
        loop = asyncio.get_running_loop()

        def delivered(rows: Sequence[Revision], settled: Sequence[tuple[object, Settled]]) -> None:
            if rows:
                self._delivered = rows[-1].number
            try:
                deliver(rows, settled)
            except Exception as error:  # noqa: BLE001 - the server ends because of it, and reads everything again
                self._lose(error)

        def deliver_in_loop(rows: Sequence[Revision], settled: Sequence[tuple[object, Settled]]) -> None:
            loop.call_soon_threadsafe(delivered, rows, settled)

        self._deliver = deliver_in_loop
        self._thread.start()
        loaded = await asyncio.to_thread(self._opened.result)
        self._delivered = max(self._delivered, loaded.counter)
        return loaded

    async def close(self) -> None:
        """Finishes all requests and closes the file."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        if self._progress is not None:
            self._progress.close()

    def write(self, writes: Sequence[Write]) -> None:
        """Queues transactions; each is carried out completely or not at all."""
        self._queue.put(writes)

    async def latest(self) -> int:
        """Returns the latest revision of any process, after delivery. Uses the thread only if another process wrote."""
        if self._progress is None:
            return self._delivered
        try:
            written: int | None = self._progress.revision()
        except sqlite3.Error:
            written = None  # busy or damaged: the thread waits, or reports it
        if written is None or written > self._delivered:
            await self._call(lambda connection: self._read_up_to(connection, written))
        return self._delivered

    async def catch_up(self, now: int) -> int:
        """Deletes expired objects and reads what other processes wrote to the file. Returns the latest revision."""
        return await self._call(lambda connection: self._catch_up(connection, now))

    async def compact(self, floor: int) -> None:
        """Deletes every revision that was superseded or deleted at or before `floor`."""
        await self._call(lambda connection: self._compact(connection, floor))

    async def snapshot(self, path: str) -> None:
        """Copies the store with SQLite's online backup. Raises StorageFailed, StorageFull."""
        await self._call(lambda connection: sqlite_file.copy_to(connection, path))

    async def _call(self, function: Callable[[sqlite3.Connection], _Result]) -> _Result:
        if self._lost is not None:
            raise self._lost
        done: Future[_Result] = Future()
        self._queue.put(_Call(lambda connection: _run_call(done, function, connection)))
        return await asyncio.wrap_future(done)

    def _run(self) -> None:
        try:
            ending = sqlite_file.examine_log(self._path)
            connection = self._connect()
            try:
                loaded = self._load(connection)
                self.short = self._recheck_short(connection)
                self._progress = sqlite_file.Progress(self._path) if self.shared else None
            except BaseException:
                connection.close()
                raise
        except StorageFailed as error:
            self._opened.set_exception(error)
            return
        except (sqlite3.Error, OSError) as error:
            self._opened.set_exception(StorageFailed(f"{self._path}: {error}"))
            return
        if ending is LogEnding.TORN:
            logger.warning(
                "the store ends in an incomplete transaction, which was discarded path=%s revision=%d",
                self._path,
                loaded.counter,
            )
        self._opened.set_result(loaded)
        while True:
            request = self._queue.get()
            writes: list[Write] = []
            while isinstance(request, list | tuple):
                # All writes queued before the next call share one commit.
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

    def _connect(self) -> sqlite3.Connection:
        """Returns a connection to the file. On a full disk SQLite cannot create its write-ahead log: the disk reserve gives it the
        space."""
        try:
            return sqlite_file.connect(self._path, self._limit_bytes)
        except sqlite3.OperationalError:
            if self._reserve is None or not self._reserve.held:
                raise
            self._reserve.release()
            return sqlite_file.connect(self._path, self._limit_bytes)

    def _load(self, connection: sqlite3.Connection) -> Loaded:
        sqlite_file.check_structure(connection)
        connection.execute("BEGIN")  # a consistent read, while other processes may be writing
        try:
            rows = sqlite_file.read_revisions(connection)
            facts = dict(connection.execute("SELECT name, value FROM fact"))
            self._leased = set(connection.execute("SELECT collection, path FROM lease"))
        finally:
            roll_back(connection)
        self._track(rows)
        self._counter = max(self._counter, facts["counter"])
        return Loaded(rows, facts["floor"], self._counter)

    def _show(self, rows: Sequence[Revision], settled: Sequence[tuple[object, Settled]]) -> None:
        """Has the rows delivered in the loop. If that fails, readers and watchers would miss them for good."""
        try:
            self._track(rows)
            self._deliver(rows, settled)
        except Exception as error:  # noqa: BLE001 - no error may end the thread, which answers all writes
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        """From now on every call fails."""
        self._lost = HistoryLost(f"written changes could not be delivered: {type(error).__name__}: {error}")
        logger.error("written changes could not be delivered", exc_info=error)

    def _track(self, rows: Sequence[Revision]) -> None:
        for row in rows:
            if row.deleted:
                self._versions.pop((row.collection, row.path), None)
            else:
                self._versions[(row.collection, row.path)] = row.number
            self._counter = row.number

    def _read_up_to(self, connection: sqlite3.Connection, written: int | None) -> None:
        """Delivers what other processes wrote up to the revision `written`; None: everything."""
        if written is None or written > self._counter:
            self._read_foreign(connection)

    def _read_foreign(self, connection: sqlite3.Connection) -> None:
        found = sqlite_file.read_revisions(connection, self._counter)
        # After the read: revisions that are compacted from now on have been read.
        (floor,) = connection.execute("SELECT value FROM fact WHERE name = 'floor'").fetchone()
        if floor > self._counter:
            raise HistoryLost(
                f"other servers compacted the history from revision {self._counter} to {floor}, which this server has not read"
            )
        if found:
            self._leased = set(connection.execute("SELECT collection, path FROM lease"))
            self._show(found, ())

    def _catch_up(self, connection: sqlite3.Connection, now: int) -> int:
        """Delivers foreign revisions, deletes expired objects, and returns the latest revision. Rarely writes."""
        self._read_foreign(connection)
        self.short = self._recheck_short(connection)
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
            self._show(rows, ())
        return self._counter

    def _body(self, connection: sqlite3.Connection, collection: str, path: str) -> bytes:
        number = self._versions[(collection, path)]
        (body,) = connection.execute("SELECT body FROM revision WHERE number = ?", (number,)).fetchone()
        return bytes(body)

    def _commit(self, connection: sqlite3.Connection, writes: Sequence[Write]) -> None:
        try:
            settled, rows = self._execute(connection, writes)
        except Exception as error:  # noqa: BLE001 - no error may end the thread, which answers all writes
            roll_back(connection)
            failure = _failure(error)
            if isinstance(failure, StorageFull) and not self.short:
                # Writes that free space may still fit.
                self.short = True
                if self._reserve is not None:
                    self._reserve.release()
                self._commit(connection, writes)
                return
            self._show((), [(write.token, failure) for write in writes])
            return
        self._show(rows, settled)

    def _execute(
        self, connection: sqlite3.Connection, writes: Sequence[Write]
    ) -> tuple[list[tuple[object, Settled]], list[Revision]]:
        """Executes the writes in one SQLite transaction. Returns the outcome of each write, and the rows of all."""
        settled: list[tuple[object, Settled]] = []
        rows: list[Revision] = []
        connection.execute("BEGIN IMMEDIATE")
        self._read_foreign(connection)
        self.short = self.short or (self._reserve is not None and not self._reserve.held)
        staged: dict[tuple[str, str], int] = {}
        leases: dict[tuple[str, str], float | None] = {}
        counter = self._counter
        for write in writes:
            refused = self._failed_precondition(write.changes, staged) or self._refusal_if_short(
                connection, write.changes
            )
            if refused is not None:
                settled.append((write.token, refused))
                continue
            leases |= self._leases_of(write)
            same = self._renewed(connection, write.changes, staged)
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

    def _compact(self, connection: sqlite3.Connection, floor: int) -> None:
        compact(connection, floor)
        self.short = self._recheck_short(connection)

    def _is_short(self, connection: sqlite3.Connection) -> bool:
        """Returns whether only the reserve of the limit or of the disk is left."""
        return (self._reserve is not None and not self._reserve.held) or self._near_limit(connection)

    def _recheck_short(self, connection: sqlite3.Connection) -> bool:
        """Like `_is_short`, after taking the disk reserve again if there is space."""
        return (self._reserve is not None and not self._reserve.hold()) or self._near_limit(connection)

    def _near_limit(self, connection: sqlite3.Connection) -> bool:
        if self._limit_bytes is None:
            return False
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        reserve = min(self._limit_bytes // 4, _LARGEST_RESERVE_BYTES)
        return bool((pages - free) * sqlite_file.PAGE_BYTES > self._limit_bytes - reserve)

    def _refusal_if_short(self, connection: sqlite3.Connection, changes: Sequence[Change]) -> StorageFull | None:
        """Returns an error if only the reserve is left and the changes neither free space nor renew an expiring object."""
        if not self.short or all(self._frees_space(connection, change) for change in changes):
            return None
        return StorageFull("the remaining space is reserved for deletions")

    def _frees_space(self, connection: sqlite3.Connection, change: Change) -> bool:
        if change.body is None or change.frees:
            return True
        key = (change.collection, change.path)
        if not self._versions.get(key):
            return False
        return key in self._leased or len(change.body) < len(self._body(connection, *key))

    def _renewed(
        self, connection: sqlite3.Connection, changes: Sequence[Change], staged: Mapping[tuple[str, str], int]
    ) -> Revision | None:
        """Returns the present row if the change only renews an expiring object, which makes no revision. Else None."""
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
        """Returns when each object of a transaction expires, in Unix seconds; None: it no longer does."""
        found: dict[tuple[str, str], float | None] = {}
        for change in write.changes:
            key = (change.collection, change.path)
            if change.seconds is not None and change.body is not None:
                found[key] = write.at + change.seconds
            elif key in self._leased:
                found[key] = None
        return found

    def _failed_precondition(
        self, changes: Sequence[Change], staged: dict[tuple[str, str], int]
    ) -> Precondition | None:
        for change in changes:
            key = (change.collection, change.path)
            actual = staged[key] if key in staged else self._versions.get(key, 0)
            if change.expected is not None and change.expected != actual:
                return Precondition(change, actual)
        return None


def _deliver_to_nobody(_: Sequence[Revision], __: Sequence[tuple[object, Settled]]) -> None:
    """Is replaced when the log is opened."""


def _revision(change: Change, number: int, at: int) -> Revision:
    deleted = change.body is None
    body = change.last if change.body is None else change.body
    return Revision(
        number, change.collection, change.path, assemble(body or b"{}", number) if body else b"", deleted, at
    )


def _run_call(
    done: "Future[_Result]", function: Callable[[sqlite3.Connection], _Result], connection: sqlite3.Connection
) -> None:
    if not done.set_running_or_notify_cancel():
        return  # the caller was cancelled
    try:
        done.set_result(function(connection))
    except Exception as error:  # noqa: BLE001 - the caller receives the error; the thread goes on
        done.set_exception(_failure(error))


def _failure(error: Exception) -> Exception:
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StorageFull(str(error))
    return error if isinstance(error, StorageFailed) else StorageFailed(str(error) or type(error).__name__)
