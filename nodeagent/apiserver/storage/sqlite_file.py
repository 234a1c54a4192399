"""The SQLite file of a log: creates, opens and copies it, and checks it for damage."""

import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from nodeagent.apiserver.storage.records import Revision, StorageDamaged, StorageFailed, assemble
from nodeagent.apiserver.storage.write_ahead import LogEnding, examine

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS revision (
    number INTEGER PRIMARY KEY, collection TEXT NOT NULL, path TEXT NOT NULL,
    body BLOB NOT NULL, deleted INTEGER NOT NULL, at INTEGER NOT NULL, checksum INTEGER
);
CREATE INDEX IF NOT EXISTS revision_by_object ON revision (collection, path, number);
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT OR IGNORE INTO fact VALUES ('floor', 0), ('counter', 0);
CREATE TABLE IF NOT EXISTS lease (
    collection TEXT NOT NULL, path TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (collection, path)
);
"""
INSERT_REVISIONS: Final = "INSERT INTO revision (number, collection, path, body, deleted, at, checksum) VALUES "
"""Names the columns, so that this version can write a store to which a later one has added some."""
_APPLICATION_ID: Final = 0x6E6F6465
_BUSY_TIMEOUT_SECONDS: Final = 10.0
PAGE_BYTES: Final = 4096
_RESTORED_AHEAD: Final = 1_000_000_000
"""How far the revision is advanced when a snapshot becomes a store: beyond any that a server assigned since it was taken."""
_MOST_NAMED: Final = 20


def connect(path: str, limit_bytes: int | None = None) -> sqlite3.Connection:
    """Opens a store, and creates it if it is new. Raises sqlite3.Error if the file is something else."""
    if path != ":memory:":
        # A store contains Secrets, so only its owner may read it; SQLite gives its WAL the same mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None)
    try:
        _prepare(connection, limit_bytes)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, limit_bytes: int | None) -> None:
    """Creates the tables that are not there. Raises sqlite3.Error if the file is something else."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != _APPLICATION_ID:
        raise sqlite3.DatabaseError("this is not a nodeagent API server store")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if limit_bytes is not None:
        connection.execute(f"PRAGMA max_page_count = {max(1, limit_bytes // PAGE_BYTES)}")
    if not tables:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    (whole,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'lease'").fetchone()
    if not whole:
        # New, or created by a version whose objects could not expire.
        connection.executescript(_SCHEMA)
    if not any(name == "checksum" for _, name, *_ in connection.execute("PRAGMA table_info(revision)")):
        # Created by a version without checksums; its records have none.
        connection.execute("ALTER TABLE revision ADD COLUMN checksum INTEGER")


class Progress:
    """Reads a store's latest revision, of any writer, in the thread of an event loop: it takes microseconds. Reading a
    write-ahead log never waits: `revision` raises sqlite3.Error instead."""

    def __init__(self, path: str) -> None:
        # From here on, nothing else in this process may open and close the file: that would release its locks (fcntl(2)).
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)

    def revision(self) -> int:
        """Returns the latest committed revision."""
        ((counter,),) = self._connection.execute("SELECT value FROM fact WHERE name = 'counter'").fetchall()
        return int(counter)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


def examine_log(path: str) -> LogEnding:
    """Returns how the write-ahead log of a store ends. Raises StorageDamaged if acknowledged transactions cannot be read."""
    if path == ":memory:":
        return LogEnding.WHOLE
    found = examine(path + "-wal")
    if found is not LogEnding.WHOLE:
        # Another server may be writing to its end.
        found = examine(path + "-wal")
    if found is LogEnding.BROKEN:
        raise StorageDamaged(
            f"{path}-wal is damaged: acknowledged transactions follow a place that cannot be read; restore a "
            "snapshot, or move the file away to do without them"
        )
    return found


def check_structure(connection: sqlite3.Connection) -> None:
    """Raises StorageDamaged if tables and indexes are inconsistent."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StorageDamaged(f"the structure of the store is damaged ({verdict}): restore a snapshot")


def read_revisions(connection: sqlite3.Connection, after: int = 0) -> list[Revision]:
    """Returns the revisions later than `after`, in order. Raises StorageDamaged, with the objects whose records are damaged."""
    found: list[Revision] = []
    damaged: list[str] = []
    for revision, is_whole in _checked(connection, after):
        if is_whole:
            found.append(revision)
        else:
            damaged.append(f"{revision.collection} {revision.path} (revision {revision.number})")
    if damaged:
        further = f" and {len(damaged) - _MOST_NAMED} more" if len(damaged) > _MOST_NAMED else ""
        raise StorageDamaged(
            f"{len(damaged)} records are not as they were written: {', '.join(damaged[:_MOST_NAMED])}{further}; restore a snapshot, or "
            "let `nodeagent apiserver repair` remove them"
        )
    return found


def remove_damaged(connection: sqlite3.Connection) -> list[str]:
    """Removes the objects with a damaged record and returns their names; clients must list again."""
    damaged = [revision for revision, is_whole in _checked(connection, 0) if not is_whole]
    connection.execute("BEGIN IMMEDIATE")
    for revision in damaged:
        # An earlier record would undo later changes, or restore a deleted object.
        connection.execute(
            "DELETE FROM revision WHERE number = ? OR (collection = ? AND path = ?)",
            (revision.number, revision.collection, revision.path),
        )
    if damaged:
        _advance_revision(connection)
    connection.execute("COMMIT")
    return [f"{revision.collection} {revision.path} (revision {revision.number})" for revision in damaged]


def _checked(connection: sqlite3.Connection, after: int) -> Iterator[tuple[Revision, bool]]:
    # Reads text as bytes: damaged text may be invalid.
    rows = connection.execute(
        "SELECT number, CAST(collection AS BLOB), CAST(path AS BLOB), CAST(body AS BLOB), deleted, at, checksum"
        " FROM revision WHERE number > ? ORDER BY number",
        (after,),
    )
    for number, collection, path, body, deleted, at, checksum in rows:
        revision = Revision(
            number, collection.decode(errors="replace"), path.decode(errors="replace"), body, bool(deleted), at
        )
        yield revision, checksum is None or checksum == checksum_of(revision)


def checksum_of(revision: Revision) -> int:
    """Returns the CRC-32 of all fields of a record."""
    head = f"{revision.number} {revision.collection} {revision.path} {int(revision.deleted)} {revision.at} ".encode()
    return zlib.crc32(revision.body, zlib.crc32(head))


def copy_to(connection: sqlite3.Connection, path: str) -> None:
    """Copies the store to the new file `path` with SQLite's online backup, and checks the copy. Raises sqlite3.Error, OSError."""
    # An existing file is not overwritten, and a link is not followed.
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC, 0o600))
    try:
        target = sqlite3.connect(path)
        try:
            connection.backup(target)
            check(target)
        finally:
            target.close()
    except BaseException:
        os.unlink(path)  # noqa: PTH108 - SQLite's paths are texts
        raise


def restore_to(connection: sqlite3.Connection, path: str) -> None:
    """Makes a snapshot the store `path`. Its revision is beyond any that clients have seen, so all watches must start again."""
    copy_to(connection, path)
    target = sqlite3.connect(path, isolation_level=None)
    try:
        _advance_revision(target)
    finally:
        target.close()


def write_store(path: str, rows: Sequence[Revision], counter: int) -> None:
    """Creates a store with these rows, each with a number of its own, and no history. Raises StorageFailed."""
    own: list[Revision] = []
    for row in rows:
        number = max(row.number, own[-1].number + 1 if own else 1)
        own.append(msgspec.structs.replace(row, number=number, body=assemble(row.body, number)))
    counter = max(counter, own[-1].number if own else 0)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = connect(path)
        try:
            connection.execute("BEGIN")
            connection.executemany(f"{INSERT_REVISIONS} (?,?,?,?,?,?,?)", map(row_values, own))
            connection.execute("UPDATE fact SET value = ?", (counter,))
            connection.execute("COMMIT")
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise StorageFailed(f"{path}: {error}") from None


def row_values(row: Revision) -> tuple[object, ...]:
    """Returns a row in the order of INSERT_REVISIONS."""
    return (row.number, row.collection, row.path, row.body, int(row.deleted), row.at, checksum_of(row))


def _advance_revision(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE fact SET value = value + ? WHERE name = 'counter'", (_RESTORED_AHEAD,))
    connection.execute(
        "UPDATE fact SET value = (SELECT value FROM fact WHERE name = 'counter') WHERE name = 'floor'",
    )


def check(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError unless the file is a complete, undamaged store."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if application != _APPLICATION_ID or verdict != "ok":
        raise sqlite3.DatabaseError("this is not a whole nodeagent API server store")
    if any(name == "checksum" for _, name, *_ in connection.execute("PRAGMA table_info(revision)")):
        try:
            read_revisions(connection)
        except StorageDamaged as error:
            raise sqlite3.DatabaseError(str(error)) from None
