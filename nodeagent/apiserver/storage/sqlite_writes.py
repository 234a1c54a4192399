"""What a log writes to its file: records and until when objects stay, and what is forgotten of them."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from nodeagent.apiserver.storage.records import Revision
from nodeagent.apiserver.storage.sqlite_file import row_values
from nodeagent.kinds.description.documents import encode

_COLUMNS: Final = 7


def insert(connection: sqlite3.Connection, rows: Sequence[Revision], counter: int) -> None:
    """One statement for all rows: each statement hands the interpreter lock over, and taking it back may cost 5 ms."""
    if not rows:
        return
    most = 32_000 // _COLUMNS
    for start in range(0, len(rows), most):
        part = rows[start : start + most]
        values = ",".join(["(?,?,?,?,?,?,?)"] * len(part))
        arguments = [value for row in part for value in row_values(row)]
        connection.execute(f"INSERT INTO revision VALUES {values}", arguments)  # noqa: S608 - only placeholders
    connection.execute("UPDATE fact SET value = ? WHERE name = 'counter'", (counter,))


def keep_leases(connection: sqlite3.Connection, leases: Mapping[tuple[str, str], float | None]) -> None:
    """Until when each object stays by itself; None: it stays."""
    for (collection, path), until in leases.items():
        if until is None:
            connection.execute("DELETE FROM lease WHERE collection = ? AND path = ?", (collection, path))
        else:
            connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?)", (collection, path, until))


def compact(connection: sqlite3.Connection, floor: int) -> None:
    """Every revision goes that was superseded or deleted at or before `floor`."""
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
        roll_back(connection)
        raise


def without_body(row: Revision) -> Revision:
    """A deletion as it is kept where there is little room: who it was, not what it said."""
    if not row.deleted or not row.body:
        return row
    namespace, _, name = row.path.rpartition("/")
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), "resourceVersion": str(row.number)}
    return Revision(row.number, row.collection, row.path, encode({"metadata": meta}), deleted=True, at=row.at)


def roll_back(connection: sqlite3.Connection) -> None:
    """A transaction, if there is one."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
