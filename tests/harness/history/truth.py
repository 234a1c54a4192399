"""What a SQLite store kept of a run, read from its file; `witness` hears what etcd does."""

import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.harness.history.records import Fact, Value

PUT, PATCHED = "put", "patched"
"""Annotations: what those wrote who replace an object, and those who patch it."""


def value_of(document: dict[str, Any]) -> Value:
    annotations = document["metadata"].get("annotations") or {}
    return (annotations.get(PUT, ""), annotations.get(PATCHED, ""))


def fact_of(revision: int, name: str, document: dict[str, Any] | None) -> Fact:
    """None: deleted."""
    if document is None:
        return Fact(revision, name, None)
    return Fact(revision, name, value_of(document), document["metadata"]["uid"], claims_of(document))


def claims_of(document: dict[str, Any] | None) -> frozenset[str]:
    """Addresses and node ports of a Service; none of what is deleted, or of another object."""
    spec = (document or {}).get("spec") or {}
    addresses = [address for address in spec.get("clusterIPs") or [] if address != "None"]
    return frozenset([*addresses, *(str(port["nodePort"]) for port in spec.get("ports") or [] if "nodePort" in port)])


def kept_in_sqlite(store: Path, namespace: str) -> dict[str, list[Fact]]:
    """Of each collection, every revision of objects of the namespace; nothing may have been compacted."""
    found: dict[str, list[Fact]] = defaultdict(list)
    with closing(sqlite3.connect(f"{store.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        (floor,) = connection.execute("SELECT value FROM fact WHERE name = 'floor'").fetchone()
        assert floor == 0, f"the history up to {floor} is gone"
        rows = connection.execute("SELECT number, collection, path, body, deleted FROM revision ORDER BY number")
        for number, collection, path, body, deleted in rows:
            place, _, name = path.rpartition("/")
            if place == namespace:
                found[collection].append(fact_of(number, name, None if deleted else json.loads(body)))
    return found
