"""The durable log: SQLite in WAL mode, written by one thread, many transactions per commit.

A transaction is acknowledged after the commit that contains it returned, so a process killed at any moment loses
nothing acknowledged; with `synchronous=FULL` neither does a machine losing power. Several processes may share one file:
each write first reads what the others wrote (BEGIN IMMEDIATE makes that exact), so revisions stay one sequence.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeVar

from nodeagent.controlplane.storage.port import Deliver, Loaded, Settled, Write
from nodeagent.controlplane.storage.records import (
    Change,
    Precondition,
    Revision,
    StorageFailed,
    StorageFull,
    assemble,
)

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS revision (
    number INTEGER PRIMARY KEY, collection TEXT NOT NULL, path TEXT NOT NULL,
    body BLOB NOT NULL, deleted INTEGER NOT NULL, at INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS revision_by_object ON revision (collection, path, number);
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT OR IGNORE INTO fact VALUES ('floor', 0), ('counter', 0);
CREATE TABLE IF NOT EXISTS lease (
    collection TEXT NOT NULL, path TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (collection, path)
);
"""
_APPLICATION_ID: Final = 0x6E6F6465
_COLUMNS: Final = 6
_BATCH: Final = 256
_BUSY_TIMEOUT_S: Final = 10.0
_PAGE_BYTES: Final = 4096


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Call:
    carry_out: Callable[[sqlite3.Connection], None]


class Log:
    """A Storage: one SQLite file (or `:memory:`) and the thread that owns its connection."""

    def __init__(self, path: str, *, limit_bytes: int | None = None) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._deliver: Deliver = _deliver_to_nobody
        self._queue: SimpleQueue[Sequence[Write] | _Call | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="store", daemon=True)
        self._opened: Future[Loaded] = Future()
        self._versions: dict[tuple[str, str], int] = {}
        self._leased: set[tuple[str, str]] = set()
        self._counter = 0

    @property
    def shared(self) -> bool:
        """A file is; memory is not."""
        return self._path != ":memory:"

    async def open(self, deliver: Deliver) -> Loaded:
        """Starts the thread and reads the log. Raises StorageFailed when the file is not a store."""
        loop = asyncio.get_running_loop()
        self._deliver = lambda rows, settled: _hand_over(loop, deliver, rows, settled)
        self._thread.start()
        return await asyncio.to_thread(self._opened.result)

    async def close(self) -> None:
        """Finishes what was asked for and closes the file."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def write(self, writes: Sequence[Write]) -> None:
        """Each transaction is carried out whole or not at all."""
        self._queue.put(writes)

    async def catch_up(self, now: int) -> int:
        """Removes objects whose time is up; reads what other processes wrote to the file since the last look."""
        return await self._call(lambda connection: self._look_around(connection, now))

    async def compact(self, floor: int) -> None:
        """Forgets every revision that was superseded or deleted at or before `floor`."""
        await self._call(lambda connection: _compact(connection, floor))

    async def snapshot(self, path: str) -> None:
        """SQLite's online backup. Raises StorageFailed, StorageFull."""
        await self._call(lambda connection: copy_to(connection, path))

    async def _call(self, function: Callable[[sqlite3.Connection], _Result]) -> _Result:
        done: Future[_Result] = Future()
        self._queue.put(_Call(lambda connection: _settle_call(done, function, connection)))
        return await asyncio.wrap_future(done)

    def _run(self) -> None:
        try:
            connection = connect(self._path, self._limit_bytes)
            loaded = self._load(connection)
        except (sqlite3.Error, OSError) as error:
            self._opened.set_exception(StorageFailed(f"{self._path}: {error}"))
            return
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
        rows = [
            Revision(number, collection, path, body, bool(deleted), at)
            for number, collection, path, body, deleted, at in connection.execute(
                "SELECT number, collection, path, body, deleted, at FROM revision ORDER BY number"
            )
        ]
        facts = dict(connection.execute("SELECT name, value FROM fact"))
        self._leased = set(connection.execute("SELECT collection, path FROM lease"))
        self._note(rows)
        self._counter = max(self._counter, facts["counter"])
        return Loaded(rows, facts["floor"], self._counter)

    def _note(self, rows: Sequence[Revision]) -> None:
        for row in rows:
            self._versions[(row.collection, row.path)] = 0 if row.deleted else row.number
            self._counter = row.number

    def _read_foreign(self, connection: sqlite3.Connection) -> None:
        found = [
            Revision(number, collection, path, body, bool(deleted), at)
            for number, collection, path, body, deleted, at in connection.execute(
                "SELECT number, collection, path, body, deleted, at FROM revision WHERE number > ? ORDER BY number",
                (self._counter,),
            )
        ]
        if found:
            self._note(found)
            self._leased = set(connection.execute("SELECT collection, path FROM lease"))
            self._deliver(found, ())

    def _look_around(self, connection: sqlite3.Connection, now: int) -> int:
        """The latest revision, delivered. Rereading is cheap; only where a time is up is there anything to write."""
        self._read_foreign(connection)
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
                _insert(connection, rows, self._counter + len(rows))
                connection.execute("COMMIT")
            except sqlite3.Error:
                _roll_back(connection)
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
        settled: list[tuple[object, Settled]] = []
        rows: list[Revision] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._read_foreign(connection)
            staged: dict[tuple[str, str], int] = {}
            leases: dict[tuple[str, str], float | None] = {}
            counter = self._counter
            for write in writes:
                broken = self._broken(write.changes, staged)
                if broken is not None:
                    settled.append((write.token, broken))
                    continue
                written = [_revision(change, counter + n, write.at) for n, change in enumerate(write.changes, 1)]
                counter += len(written)
                staged |= {(row.collection, row.path): 0 if row.deleted else row.number for row in written}
                rows += written
                leases |= self._leases_of(write)
                settled.append((write.token, written))
            _insert(connection, rows, counter)
            _keep_leases(connection, leases)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            self._deliver((), [(write.token, _failure(error)) for write in writes])
            return
        self._leased = (self._leased | {key for key, until in leases.items() if until is not None}) - {
            key for key, until in leases.items() if until is None
        }
        self._note(rows)
        self._deliver(rows, settled)

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


def connect(path: str, limit_bytes: int | None = None) -> sqlite3.Connection:
    """A connection to a store, created if new. Raises sqlite3.Error when the file is something else."""
    _create_private(path)
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != _APPLICATION_ID:
        connection.close()
        raise sqlite3.DatabaseError("this is not a nodeagent API server store")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if limit_bytes is not None:
        connection.execute(f"PRAGMA max_page_count = {max(1, limit_bytes // _PAGE_BYTES)}")
    if not tables:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    (whole,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'lease'").fetchone()
    if not whole:
        # New, or made before objects could have an end.
        connection.executescript(_SCHEMA)
    return connection


def copy_to(connection: sqlite3.Connection, path: str) -> None:
    """SQLite's online backup into `path`, checked before it is called done. Raises sqlite3.Error, OSError."""
    _create_private(path)
    target = sqlite3.connect(path)
    try:
        connection.backup(target)
        check(target)
    finally:
        target.close()


def _create_private(path: str) -> None:
    """A store holds Secrets, so only its owner may read it; SQLite gives its WAL the same mode."""
    if path != ":memory:":
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def check(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError unless the file is a whole store."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if application != _APPLICATION_ID or verdict != "ok":
        raise sqlite3.DatabaseError("this is not a whole nodeagent API server store")


def _revision(change: Change, number: int, at: int) -> Revision:
    deleted = change.body is None
    body = change.last if change.body is None else change.body
    return Revision(
        number, change.collection, change.path, assemble(body or b"{}", number) if body else b"", deleted, at
    )


def _insert(connection: sqlite3.Connection, rows: Sequence[Revision], counter: int) -> None:
    """One statement for all rows: each statement hands the interpreter lock over, and taking it back may cost 5 ms."""
    if not rows:
        return
    most = 32_000 // _COLUMNS
    for start in range(0, len(rows), most):
        part = rows[start : start + most]
        values = ",".join(["(?,?,?,?,?,?)"] * len(part))
        arguments = [value for r in part for value in (r.number, r.collection, r.path, r.body, int(r.deleted), r.at)]
        connection.execute(f"INSERT INTO revision VALUES {values}", arguments)  # noqa: S608 - only placeholders
    connection.execute("UPDATE fact SET value = ? WHERE name = 'counter'", (counter,))


def _keep_leases(connection: sqlite3.Connection, leases: Mapping[tuple[str, str], float | None]) -> None:
    for (collection, path), until in leases.items():
        if until is None:
            connection.execute("DELETE FROM lease WHERE collection = ? AND path = ?", (collection, path))
        else:
            connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?)", (collection, path, until))


def _compact(connection: sqlite3.Connection, floor: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "DELETE FROM revision WHERE number <= ?1 AND (deleted = 1 OR EXISTS ("
            " SELECT 1 FROM revision AS later WHERE later.collection = revision.collection"
            " AND later.path = revision.path AND later.number > revision.number AND later.number <= ?1))",
            (floor,),
        )
        connection.execute("UPDATE fact SET value = max(value, ?) WHERE name = 'floor'", (floor,))
        connection.execute("COMMIT")
    except sqlite3.Error:
        _roll_back(connection)
        raise


def _settle_call(
    done: "Future[_Result]", function: Callable[[sqlite3.Connection], _Result], connection: sqlite3.Connection
) -> None:
    if not done.set_running_or_notify_cancel():
        return  # whoever asked is gone
    try:
        done.set_result(function(connection))
    except (sqlite3.Error, OSError) as error:
        done.set_exception(_failure(error))


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _failure(error: Exception) -> Exception:
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return StorageFull(str(error))
    return StorageFailed(str(error))
