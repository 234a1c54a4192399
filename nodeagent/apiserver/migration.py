"""Copies the objects of one store into another. If it is interrupted, a second run continues."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from nodeagent.apiserver.addresses.allocation import NODE_PORT_RECORDS
from nodeagent.apiserver.addresses.port_bitmap import RANGE_ALLOCATIONS
from nodeagent.apiserver.live_servers import MASTER_LEASES, SERVERS
from nodeagent.apiserver.storage.records import Change, Precondition, Record
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document

_AT_A_TIME: Final = 32
_NOT_MOVED: Final = frozenset({SERVERS, MASTER_LEASES, RANGE_ALLOCATIONS, NODE_PORT_RECORDS})
"""Live servers, and node ports: the first server on the target records those of the Services."""


@dataclass(slots=True)
class MigrationResult:
    """How many objects were written, and how many existed with the same content. `different`: exist with another content."""

    written: int = 0
    same: int = 0
    different: list[str] = field(default_factory=list)


async def move(source: Store, target: Store) -> MigrationResult:
    """Writes the objects that `target` lacks, overwrites none, and then compares all. Raises StorageFailed, StorageFull."""
    moved = MigrationResult()
    todo: list[tuple[str, Record]] = []
    for collection, record in _objects(source):
        found = target.get(collection, record.path)
        if found is None:
            todo.append((collection, record))
        elif _content(found) == _content(record):
            moved.same += 1
    for start in range(0, len(todo), _AT_A_TIME):
        moved.written += await _write(target, todo[start : start + _AT_A_TIME])
    await target.catch_up()
    for collection, record in _objects(source):
        found = target.get(collection, record.path)
        if found is None or _content(found) != _content(record):
            moved.different.append(f"{collection} {record.path}")
    return moved


async def _write(target: Store, part: Sequence[tuple[str, Record]]) -> int:
    commits = [target.commit([Change(collection, record.path, 0, record.body)]) for collection, record in part]
    results = await asyncio.gather(*commits, return_exceptions=True)
    for result in results:
        # Objects that were created meanwhile are compared at the end.
        if isinstance(result, BaseException) and not isinstance(result, Precondition):
            raise result
    return sum(not isinstance(result, BaseException) for result in results)


def _objects(store: Store) -> Iterator[tuple[str, Record]]:
    """Yields (collection, record) of all objects; namespaces first, so that a watcher knows the namespace of each object."""
    for name in sorted(store.names, key=lambda name: (name != "namespaces", name)):
        if name not in _NOT_MOVED:
            for path in store.collection(name).paths():
                yield name, store.collection(name).records[path]


def _content(record: Record) -> Document:
    document = record.document()
    document["metadata"].pop("resourceVersion", None)
    return document
