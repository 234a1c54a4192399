"""The latest state and the recent history, in the event loop; every change goes through `commit`.

Reads never wait: they see every change that this server has acknowledged, and after `latest` those of other servers. Watchers
hold a position in a collection's history and are woken when it grows, so a slow watcher costs nothing but its own delay: when
the window has moved past its position it receives `Compacted` and must list again.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from nodeagent.apiserver.storage.port import Loaded, Settled, Storage, Write
from nodeagent.apiserver.storage.records import (
    Change,
    Compacted,
    Event,
    EventKind,
    Record,
    Revision,
)

_SECONDS_WHEN_SHORT: Final = 1


@dataclass(frozen=True, slots=True)
class Window:
    """How much history is kept for watches and consistent lists; the first limit that is reached counts."""

    seconds: int = 300
    events: int = 100_000
    superseded_bytes: int = 64 * 1024 * 1024


_SORTED_AT_ONCE: Final = 2000
"""Paths; takes about a millisecond."""


@dataclass(frozen=True, slots=True)
class PastState:
    """A collection at an earlier revision: its records, and their paths in order."""

    records: Mapping[str, Record]
    ordered: list[str]

    def paths(self, prefix: str = "", after: str | None = None) -> list[str]:
        """Returns the paths that start with `prefix`, in order, beyond `after`."""
        return _within(self.ordered, prefix, after)


def _within(paths: list[str], prefix: str, after: str | None) -> list[str]:
    start = bisect_left(paths, prefix) if after is None else bisect_right(paths, after)
    start = max(start, bisect_left(paths, prefix))
    end = bisect_left(paths, prefix + "\U0010ffff") if prefix else len(paths)
    return paths[start:end]


class Collection:
    """All objects of one resource, ordered by path, and their recent events."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: dict[str, Record] = {}
        self._paths: list[str] = []
        self._events: list[Event] = []
        self._revisions: list[int] = []
        self._watchers: set[Callable[[], None]] = set()
        self.size_bytes = 0
        """Of all objects."""
        self.forgotten = 0
        """The revision of the latest event that was dropped: a watcher that has seen it has missed nothing."""

    def paths(self, prefix: str = "", after: str | None = None) -> list[str]:
        """Returns the paths that start with `prefix`, in order, beyond `after`."""
        return _within(self._paths, prefix, after)

    def put(self, record: Record, at: int) -> Event:
        """Stores the object's new state and returns the event."""
        before = self.records.get(record.path)
        self.records[record.path] = record
        self.size_bytes += len(record.body) - (len(before.body) if before is not None else 0)
        if before is None:
            insort(self._paths, record.path)
        return self._append(Event(EventKind.ADDED if before is None else EventKind.MODIFIED, record, before, at))

    def drop(self, record: Record, at: int) -> Event:
        """Removes an object; `record` is its last state at the revision of the deletion. Returns the event."""
        before = self.records.pop(record.path, None)
        if before is not None:
            self.size_bytes -= len(before.body)
            del self._paths[bisect_left(self._paths, record.path)]
        return self._append(Event(EventKind.DELETED, record, before, at))

    def _append(self, event: Event) -> Event:
        self._events.append(event)
        self._revisions.append(event.revision)
        return event

    def events_after(self, revision: int, limit: int = 1000) -> Sequence[Event]:
        """Returns about `limit` events later than `revision`, oldest first: events of one revision stay together."""
        start = bisect_right(self._revisions, revision)
        if len(self._revisions) - start <= limit:
            return self._events[start:]
        return self._events[start : bisect_right(self._revisions, self._revisions[start + limit - 1])]

    def past(self, revision: int) -> Generator[None, None, PastState]:
        """Returns the collection at `revision`, computed in steps. The history must reach back to it."""
        records, paths = dict(self.records), self._paths[:]
        seen, gone = set[str](), list[str]()
        for event in self._events[bisect_right(self._revisions, revision) :]:
            yield
            path = event.record.path
            if path in seen:
                continue
            # The first change after the revision has the object's state at that revision.
            seen.add(path)
            if event.before is None:
                records.pop(path, None)
                continue
            if path not in records:
                gone.append(path)
            records[path] = event.before
        for start in range(0, len(gone), _SORTED_AT_ONCE):
            gone[start : start + _SORTED_AT_ONCE] = sorted(gone[start : start + _SORTED_AT_ONCE])
            yield
        ordered = list(filter(records.__contains__, paths)) + gone
        ordered.sort()  # fast: it merges runs that are already in order
        return PastState(records, ordered)

    def forget(self, floor: int) -> None:
        """Drops the events at or before `floor`."""
        keep = bisect_right(self._revisions, floor)
        if keep:
            self.forgotten = self._revisions[keep - 1]
            del self._events[:keep]
            del self._revisions[:keep]

    def wake(self) -> None:
        """Wakes every watcher."""
        for watcher in self._watchers:
            watcher()

    def register(self, watcher: Callable[[], None]) -> None:
        """Adds a watcher that is called each time the history has grown; it must return at once and not raise."""
        self._watchers.add(watcher)

    def unregister(self, watcher: Callable[[], None]) -> None:
        """Removes a watcher."""
        self._watchers.discard(watcher)


class Store:
    """The collections of one storage. An async context manager: entering opens the storage, leaving closes it."""

    def __init__(self, storage: Storage, *, window: Window = Window(), clock: Callable[[], float]) -> None:
        self._storage = storage
        self._window = window
        self._clock = clock
        self._collections: dict[str, Collection] = {}
        self._pending: list[Write] = []
        self._timeline: deque[tuple[int, int, int]] = deque()
        self._superseded_bytes = 0
        self.revision = 0
        """The latest revision of any object."""
        self.floor = 0
        """The oldest revision from which a watch or a consistent list may start."""

    @property
    def shared(self) -> bool:
        """Whether other servers may write to this store."""
        return self._storage.shared

    @property
    def remote(self) -> bool:
        """Whether the storage is remote; then writes of other servers arrive automatically."""
        return self._storage.remote

    @property
    def reachable(self) -> bool:
        """Whether the storage answers."""
        return self._storage.reachable

    @property
    def failure_reason(self) -> str:
        """Why it does not answer; empty if that is not known."""
        return self._storage.failure_reason

    @property
    def short(self) -> bool:
        """Whether only writes that free space are accepted."""
        return self._storage.short

    async def __aenter__(self) -> Self:
        self._install(await self._storage.open(self._settle))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._storage.close()

    def collection(self, name: str) -> Collection:
        """Returns the collection of that name; creates it at the first call."""
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = Collection(name)
        return found

    @property
    def names(self) -> list[str]:
        """The names of all collections that were requested, or have had objects."""
        return list(self._collections)

    def get(self, collection: str, path: str) -> Record | None:
        """Returns the latest record of an object, or None if it does not exist."""
        return self.collection(collection).records.get(path)

    def wake(self) -> None:
        """Wakes every watcher, although nothing changed."""
        for collection in self._collections.values():
            collection.wake()

    async def commit(self, changes: Sequence[Change]) -> list[Record]:
        """Writes all changes or none; returns the resulting records (for deletions: the last states). Raises Precondition,
        StorageFull or StorageFailed. Cancelling the caller does not undo the write."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Revision]] = loop.create_future()
        if not self._pending:
            # All commits of this iteration of the loop go to the storage in one batch.
            loop.call_soon(self._submit)
        self._pending.append(Write(changes, int(self._clock()), done))
        rows = await done
        return [Record(row.path, row.number, row.body) for row in rows]

    async def catch_up(self) -> None:
        """Reads what other servers wrote and deletes expired objects. Raises StorageFailed."""
        await self._storage.catch_up(int(self._clock()))

    async def latest(self) -> None:
        """Waits until reads are at least as new as this call, of any writer. Raises StorageFailed."""
        if self._storage.shared:
            latest = await self._storage.latest()
            self.revision = max(self.revision, latest)

    async def compact(self) -> None:
        """Moves the floor to the start of the window and drops older history."""
        floor = self._window_start()
        if floor <= self.floor:
            return
        await self._storage.compact(floor)
        self._forget(floor)

    async def snapshot(self, path: str) -> None:
        """Copies the store to a new file. Raises StorageFailed, StorageFull."""
        await self._storage.snapshot(path)

    def check_revision(self, revision: int) -> None:
        """Raises Compacted if the history does not reach back to `revision`."""
        if revision < self.floor:
            raise Compacted(self.floor)

    def _submit(self) -> None:
        writes, self._pending = self._pending, []
        self._storage.write(writes)

    def _settle(self, rows: Sequence[Revision], settled: Sequence[tuple[object, Settled]]) -> None:
        """Shows the new state to readers and watchers, then to the clients that wrote it."""
        self._apply(rows)
        for token, outcome in settled:
            assert isinstance(token, asyncio.Future)
            if token.done():
                continue
            if isinstance(outcome, Exception):
                token.set_exception(outcome)
            else:
                token.set_result(outcome)

    def _install(self, loaded: Loaded) -> None:
        self._apply(loaded.rows)
        self.revision = loaded.counter
        self._forget(loaded.floor)

    def _apply(self, rows: Sequence[Revision]) -> None:
        touched: set[str] = set()
        for row in rows:
            collection = self.collection(row.collection)
            record = Record(row.path, row.number, row.body)
            event = collection.drop(record, row.at) if row.deleted else collection.put(record, row.at)
            size = len(event.before.body) if event.before else 0
            self._timeline.append((row.number, row.at, size))
            self._superseded_bytes += size
            self.revision = row.number
            touched.add(row.collection)
        for name in touched:
            self.collection(name).wake()

    def _window_start(self) -> int:
        """Returns the revision before the oldest event in the window; if the store is full, the window is one second."""
        seconds = min(self._window.seconds, _SECONDS_WHEN_SHORT) if self.short else self._window.seconds
        oldest = int(self._clock()) - seconds
        floor, events, size = self.floor, len(self._timeline), self._superseded_bytes
        for number, at, superseded in self._timeline:
            if at >= oldest and events <= self._window.events and size <= self._window.superseded_bytes:
                break
            floor, events, size = number, events - 1, size - superseded
        return floor

    def _forget(self, floor: int) -> None:
        self.floor = floor
        while self._timeline and self._timeline[0][0] <= floor:
            self._superseded_bytes -= self._timeline.popleft()[2]
        for collection in self._collections.values():
            collection.forget(floor)
