"""The statements with which a log writes its file: records, expiry of objects, and compaction."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from nodeagent.apiserver.storage.records import Revision
from nodeagent.apiserver.storage.sqlite_file import INSERT_REVISIONS, row_values
from nodeagent.kinds.description.documents import encode

_COLUMNS: Final = 7


def insert(connection: sqlite3.Connection, rows: Sequence[Revision], counter: int) -> None:
    """Inserts all rows with one statement: each statement releases the interpreter lock, and taking it again may cost 5 ms."""
    if not rows:
        return
    most = 32_000 // _COLUMNS
    for start in range(0, len(rows), most):
        part = rows[start : start + most]
        values = ",".join(["(?,?,?,?,?,?,?)"] * len(part))
        arguments = [value for row in part for value in row_values(row)]
        connection.execute(f"{INSERT_REVISIONS} {values}", arguments)
    connection.execute("UPDATE fact SET value = ? WHERE name = 'counter'", (counter,))


def keep_leases(connection: sqlite3.Connection, leases: Mapping[tuple[str, str], float | None]) -> None:
    """Stores when each object expires, in Unix seconds; None: it no longer does."""
    for (collection, path), until in leases.items():
        if until is None:
            connection.execute("DELETE FROM lease WHERE collection = ? AND path = ?", (collection, path))
        else:
            row = (collection, path, until)
            connection.execute("INSERT OR REPLACE INTO lease (collection, path, until) VALUES (?, ?, ?)", row)


def compact(connection: sqlite3.Connection, floor: int) -> None:
    """Deletes every revision that was superseded or deleted at or before `floor`. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "DELETE FROM revision WHERE number <= :floor AND (deleted = 1 OR EXISTS ("
            " SELECT 1 FROM revision AS later WHERE later.collection = revision.collection"
            " AND later.path = revision.path AND later.number > revision.number AND later.number <= :floor))",
            {"floor": floor},
        )
        connection.execute("UPDATE fact SET value = max(value, ?) WHERE name = 'floor'", (floor,))
        connection.execute("COMMIT")
    except sqlite3.Error:
        roll_back(connection)
        raise


def without_body(row: Revision) -> Revision:
    """Returns a deletion in the form that is kept while space is short: only the object's identity."""
    if not row.deleted or not row.body:
        return row
    namespace, _, name = row.path.rpartition("/")
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), "resourceVersion": str(row.number)}
    return Revision(row.number, row.collection, row.path, encode({"metadata": meta}), deleted=True, at=row.at)


def roll_back(connection: sqlite3.Connection) -> None:
    """Rolls a transaction back, if one is open."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
