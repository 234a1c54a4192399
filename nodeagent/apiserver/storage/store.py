"""The latest state and the recent past, in the event loop; every change goes through `commit`.

Reads never wait: they see every change that this server has acknowledged, and after `latest` what others have. Watchers hold
a position in a collection's history and are woken when it grows, so a slow one costs nothing but its own lateness: when the
window has moved past its position it receives `Compacted` and must list again.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
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
    """How much history is kept for watches and consistent lists: whichever limit is reached first."""

    seconds: int = 300
    events: int = 100_000
    superseded_bytes: int = 64 * 1024 * 1024


_SORTED_AT_ONCE: Final = 2000
"""Paths; about a millisecond."""


@dataclass(frozen=True, slots=True)
class Past:
    """A collection as it was at a revision: its records, and their paths in order."""

    records: Mapping[str, Record]
    ordered: list[str]

    def paths(self, prefix: str = "", after: str | None = None) -> list[str]:
        """Paths that start with `prefix`, in order, beyond `after`."""
        return _within(self.ordered, prefix, after)


def _within(paths: list[str], prefix: str, after: str | None) -> list[str]:
    start = bisect_left(paths, prefix) if after is None else bisect_right(paths, after)
    start = max(start, bisect_left(paths, prefix))
    end = bisect_left(paths, prefix + "\U0010ffff") if prefix else len(paths)
    return paths[start:end]


class Collection:
    """All objects of one resource, ordered by path, and the events that led here."""

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
        """The revision of the latest event that was dropped: who has seen it has missed nothing."""

    def paths(self, prefix: str = "", after: str | None = None) -> list[str]:
        """Paths that start with `prefix`, in order, beyond `after`."""
        return _within(self._paths, prefix, after)

    def put(self, record: Record, at: int) -> Event:
        """The object now is `record`."""
        before = self.records.get(record.path)
        self.records[record.path] = record
        self.size_bytes += len(record.body) - (len(before.body) if before is not None else 0)
        if before is None:
            insort(self._paths, record.path)
        return self._append(Event(EventKind.ADDED if before is None else EventKind.MODIFIED, record, before, at))

    def drop(self, record: Record, at: int) -> Event:
        """The object is gone; `record` is its last state at the revision of the deletion."""
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
        """About `limit` events later than `revision`, oldest first: those of one revision are not parted."""
        start = bisect_right(self._revisions, revision)
        if len(self._revisions) - start <= limit:
            return self._events[start:]
        return self._events[start : bisect_right(self._revisions, self._revisions[start + limit - 1])]

    def past(self, revision: int) -> Generator[None, None, Past]:
        """The collection as it was at `revision`, in steps; changes meanwhile do not matter. History must reach back that far."""
        records, paths = dict(self.records), self._paths[:]
        seen, gone = set[str](), list[str]()
        for event in self._events[bisect_right(self._revisions, revision) :]:
            yield
            path = event.record.path
            if path in seen:
                continue
            # The first change after the revision knows what was there before.
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
        ordered.sort()  # runs in order are only merged
        return Past(records, ordered)

    def forget(self, floor: int) -> None:
        """Drops the events at or before `floor`."""
        keep = bisect_right(self._revisions, floor)
        if keep:
            self.forgotten = self._revisions[keep - 1]
            del self._events[:keep]
            del self._revisions[:keep]

    def wake(self) -> None:
        """Tells every watcher that there is something new."""
        for watcher in self._watchers:
            watcher()

    def register(self, watcher: Callable[[], None]) -> None:
        """`watcher` is called each time the history has grown; it only takes note, and does not raise."""
        self._watchers.add(watcher)

    def unregister(self, watcher: Callable[[], None]) -> None:
        """The watcher has left."""
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
        """The latest revision of anything."""
        self.floor = 0
        """The oldest revision a watch or a consistent list may start from."""

    @property
    def shared(self) -> bool:
        """Others can write to this store, too."""
        return self._storage.shared

    @property
    def remote(self) -> bool:
        """It is elsewhere; others' writes come by themselves."""
        return self._storage.remote

    @property
    def reachable(self) -> bool:
        """Whether the storage answers."""
        return self._storage.reachable

    @property
    def trouble(self) -> str:
        """Why not; empty where nothing is known."""
        return self._storage.trouble

    @property
    def short(self) -> bool:
        """There is room only for what leads to less."""
        return self._storage.short

    async def __aenter__(self) -> Self:
        self._install(await self._storage.open(self._settle))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._storage.close()

    def collection(self, name: str) -> Collection:
        """The collection of that name; it comes into being when first asked for."""
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = Collection(name)
        return found

    @property
    def names(self) -> list[str]:
        """Collections that were asked for, or have had objects."""
        return list(self._collections)

    def get(self, collection: str, path: str) -> Record | None:
        """The latest record of an object."""
        return self.collection(collection).records.get(path)

    def wake(self) -> None:
        """Makes every watcher look around, although nothing changed."""
        for collection in self._collections.values():
            collection.wake()

    async def commit(self, changes: Sequence[Change]) -> list[Record]:
        """Writes all changes or none; returns the resulting records (for deletions: the last states).

        Raises Precondition, StorageFull or StorageFailed. Cancelling the caller does not undo the write.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Revision]] = loop.create_future()
        if not self._pending:
            # Whatever else this turn of the loop commits goes to the storage in the same batch.
            loop.call_soon(self._submit)
        self._pending.append(Write(changes, int(self._clock()), done))
        rows = await done
        return [Record(row.path, row.number, row.body) for row in rows]

    async def catch_up(self) -> None:
        """Takes over what others wrote; objects whose time is up go. Raises StorageFailed."""
        await self._storage.catch_up(int(self._clock()))

    async def latest(self) -> None:
        """Returns when reads are at least as new as this call, of any writer. Raises StorageFailed."""
        if self._storage.shared:
            latest = await self._storage.latest()
            self.revision = max(self.revision, latest)

    async def compact(self) -> None:
        """Moves the floor to the start of the window and forgets what lies before it."""
        floor = self._window_start()
        if floor <= self.floor:
            return
        await self._storage.compact(floor)
        self._forget(floor)

    async def snapshot(self, path: str) -> None:
        """Copies the store to a new file. Raises StorageFailed, StorageFull."""
        await self._storage.snapshot(path)

    def check_revision(self, revision: int) -> None:
        """Raises Compacted when history no longer reaches back to `revision`."""
        if revision < self.floor:
            raise Compacted(self.floor)

    def _submit(self) -> None:
        writes, self._pending = self._pending, []
        self._storage.write(writes)

    def _settle(self, rows: Sequence[Revision], settled: Sequence[tuple[object, Settled]]) -> None:
        """Shows the new state to readers and watchers, then to those who wrote it."""
        self._take(rows)
        for token, outcome in settled:
            assert isinstance(token, asyncio.Future)
            if token.done():
                continue
            if isinstance(outcome, Exception):
                token.set_exception(outcome)
            else:
                token.set_result(outcome)

    def _install(self, loaded: Loaded) -> None:
        self._take(loaded.rows)
        self.revision = loaded.counter
        self._forget(loaded.floor)

    def _take(self, rows: Sequence[Revision]) -> None:
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
        """The revision before the oldest event the window keeps; of a store that is full, all but the last seconds go."""
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
