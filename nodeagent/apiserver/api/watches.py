"""Watch streams: which events a watcher receives, in which order (KEP-3157 for initial events).

A watcher holds a position in the history. Each time the collection grows, it reads on from there, so all watchers share the
encoded events; a watcher that is behind the history receives 410 and ends. While a watcher has received everything and its
connection accepts data, events are written directly, without waking its task.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from nodeagent.apiserver.api import metadata_only
from nodeagent.apiserver.api.deliveries import Deliveries
from nodeagent.apiserver.api.request_target import Shape
from nodeagent.apiserver.api.table_output import bookmark_row, table_of
from nodeagent.apiserver.machinery.loop_time import Clock, LoopTime
from nodeagent.apiserver.machinery.reading import Selection, Steps
from nodeagent.apiserver.storage.records import Compacted, Event, EventKind, Record
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.documents import Document, decode, encode
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.status import ApiError, expired, future_version

_BATCH: Final = 500
_FEW: Final = 20
"""Up to this many events are delivered without a task. For more, the task waits for its turn, like all long work."""
_BATCH_BYTES: Final = 256 * 1024
"""The memory that a watcher may hold for frames that it has not read; larger frames are written piece by piece."""
Part: TypeAlias = bytes | memoryview
"""A part of a frame, or several frames that are written together."""
_END_OF_LIST: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What to watch and from which revision. `since` None: from now, with the present objects first, as ADDED."""

    selection: Selection
    since: int | None
    bookmarks: bool = False
    initial_events: bool = False
    timeout_s: float = 1800.0
    shape: Shape | None = None
    """The form that is sent instead of objects: rows of a Table, or PartialObjectMetadata."""
    client: str = ""
    """The user to which the time for looking through objects and events is charged."""


class Stream(Protocol):
    """The connection to which frames are written."""

    def write_now(self, frames: bytes) -> bool:
        """Writes without waiting. Returns False, and writes nothing, if the connection still has too much unsent data."""
        ...

    async def write(self, frames: bytes | memoryview) -> None:
        """Writes part of the stream; waits while the connection is behind. Raises ConnectionError."""
        ...


def selected_kind(event: Event, selection: Selection) -> EventKind | None:
    """Returns the kind of event for a watcher of the selection, or None if it receives none. An object that starts to match is
    ADDED, one that no longer matches is DELETED."""
    after = event.kind is not EventKind.DELETED and selection.matches(event.record)
    before = event.before is not None and selection.matches(event.before)
    if after:
        return EventKind.MODIFIED if before else EventKind.ADDED
    return EventKind.DELETED if before else None


class Watch:
    """One watch stream. `run` writes frames until the timeout, the server's stop, or the loss of its place in the history."""

    content_type: Final = "application/json"

    def __init__(
        self,
        store: Store,
        resource: Resource,
        request: WatchRequest,
        *,
        stopping: asyncio.Event,
        clock: Clock,
        deliveries: Deliveries,
        loop_time: LoopTime,
        bookmark_every_seconds: float,
    ) -> None:
        self._store = store
        self._loop_time = loop_time
        self._resource = resource
        self._request = request
        self._stopping = stopping
        self._clock = clock
        self._bookmark_every_seconds = bookmark_every_seconds
        self._collection = store.collection(resource.stored_in)
        self._deliveries = deliveries
        shape = request.shape
        self._table = shape.version if shape is not None and shape.kind == "Table" else ""
        self._is_partial = shape is not None and shape.kind == metadata_only.KIND
        self._opening = (
            metadata_only.opening(shape.version) if shape is not None and self._is_partial else resource.opening
        )
        self._openings = {
            kind: b'{"type":"%b","object":%b' % (kind.value.encode(), self._opening) for kind in EventKind
        }
        self._is_converted = bool(self._table) or (resource.converts and not self._is_partial)
        """Whether frames are made for this watcher, instead of from the shared encoded events."""
        self._position = 0
        self._first_table = True
        self._news = asyncio.Event()
        self._idle: Stream | None = None
        """The stream while everything has been sent and the task sleeps; else None."""

    async def run(self, stream: Stream) -> None:
        """Streams until the watch ends. Errors of the connection are raised by `stream` and passed on."""
        self._collection.register(self._notify)
        try:
            await self._begin(stream)
            await self._follow(stream)
        except ApiError as error:
            await stream.write(b'{"type":"ERROR","object":%b}\n' % encode(error.document))
        finally:
            self._collection.unregister(self._notify)

    def _notify(self) -> None:
        if self._idle is None:
            self._news.set()
        else:
            self._deliveries.add(self)

    def deliver(self) -> bool:
        """Writes the new events if they are few and need no waiting. Otherwise wakes the task to do so, and returns False."""
        events = self._collection.events_after(self._position, _FEW)
        if self._idle is None or self._is_converted or not 0 < len(events) <= _FEW:
            self._news.set()
            return False
        if self._position < self._collection.forgotten or sum(len(e.record.body) for e in events) > _BATCH_BYTES:
            self._news.set()
            return False
        frames = b"".join(part for event in events for part in self._frame_of(event))
        if frames and not self._idle.write_now(frames):
            self._news.set()
            return False
        self._position = events[-1].revision
        return True

    async def _begin(self, stream: Stream) -> None:
        request, store = self._request, self._store
        self._position = store.revision
        if request.since is not None and not request.initial_events:
            if request.since > store.revision:
                raise future_version(request.since, store.revision)
            self._position = request.since
            try:
                store.check_revision(request.since)
            except Compacted:
                raise self._expired() from None
            return
        # A snapshot: a change while these frames are written is sent afterwards, as an event.
        records = list(map(self._collection.records.__getitem__, self._collection.paths()))
        pieces = self._initial_frames(records)
        while len(piece := await self._loop_time.next_piece(request.client, pieces)):
            await stream.write(piece)

    def _initial_frames(self, records: Sequence[Record]) -> Iterator[Part]:
        """Yields the frames of the present objects in pieces; an empty piece is only a step of the work."""
        request = self._request
        parts: list[Part] = []
        weight = 0
        for record in records:
            yield b""
            if not request.selection.matches(record):
                continue
            frame = self._frame(EventKind.ADDED, Event(EventKind.ADDED, record, None, 0))
            size = sum(map(len, frame))
            if weight + size > _BATCH_BYTES and parts:
                yield b"".join(parts)
                parts, weight = [], 0
            if size > _BATCH_BYTES:
                yield from frame
            else:
                parts += frame
                weight += size
        if request.initial_events and request.bookmarks:
            parts.append(self._bookmark(end_of_list=True))
        yield b"".join(parts)

    async def _follow(self, stream: Stream) -> None:
        ends = self._clock.monotonic() + self._request.timeout_s
        next_bookmark = min(self._clock.monotonic() + self._bookmark_every_seconds, max(ends - 2.0, 0.0))
        while not self._stopping.is_set():
            self._news.clear()
            self._check_history()
            events = self._collection.events_after(self._position, _BATCH)
            if events:
                pieces, self._position = await self._loop_time.run(self._request.client, self._next_frames(events))
                del events  # a watcher that does not read must hold no more than what is being written
                for piece in pieces:
                    await stream.write(piece)
                continue
            now = self._clock.monotonic()
            if now >= ends:
                return
            if self._request.bookmarks and now >= next_bookmark:
                self._position = max(self._position, self._store.revision)
                await stream.write(self._bookmark())
                next_bookmark = now + self._bookmark_every_seconds
            until = min(ends, next_bookmark) if self._request.bookmarks else ends
            await self._sleep(stream, max(until - now, 0.0))

    async def _sleep(self, stream: Stream, seconds: float) -> None:
        self._idle = stream
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return
        finally:
            self._idle = None

    def _check_history(self) -> None:
        """Raises ApiError 410 if events that the watcher has not received were dropped from the history."""
        if self._position < self._collection.forgotten:
            raise self._expired()

    def _expired(self) -> ApiError:
        return expired(f"too old resource version: {self._position} ({self._store.revision})")

    def _next_frames(self, events: Sequence[Event]) -> Steps[tuple[list[Part], int]]:
        """Returns (pieces to write, revision reached) for the first of these events: up to `_BATCH_BYTES`, but at least one
        revision. Events of one revision stay together. Small events are joined into one piece."""
        pieces: list[Part] = []
        small: list[Part] = []
        weight, position = 0, self._position
        for event in events:
            if event.revision > position:
                if weight and weight + len(event.record.body) > _BATCH_BYTES:
                    break
                position = event.revision
            frame = self._frame_of(event)
            size = sum(map(len, frame))
            weight += size
            if size > _BATCH_BYTES:
                pieces += (b"".join(small), *frame)
                small = []
            else:
                small += frame
            yield
        return [piece for piece in (*pieces, b"".join(small)) if piece], position

    def _frame_of(self, event: Event) -> tuple[Part, ...]:
        kind = selected_kind(event, self._request.selection)
        return () if kind is None else self._frame(kind, event)

    def _frame(self, kind: EventKind, event: Event) -> tuple[Part, ...]:
        """Returns the frame in parts, so that the object's bytes, which all watchers share, are not copied before sending."""
        body = event.body_as(kind)
        if not self._is_converted and not self._is_partial:
            return self._openings[kind], memoryview(body)[1:], b"}\n"
        if self._is_partial:
            return self._openings[kind], b'"metadata":', metadata_only.metadata_of(body), b"}}\n"
        record = Record(event.record.path, event.revision, body)
        resource = self._resource
        shown: Document
        if self._table:
            shown = table_of(
                resource,
                [record],
                version=self._table,
                revision=event.revision,
                now=self._clock.time(),
                headed=self._first_table,
            )
            self._first_table = False
        else:
            shown = decode(resource.opening + encode(resource.from_stored(record.document()))[1:])
        return (b'{"type":"%b","object":%b}\n' % (kind.value.encode(), encode(shown)),)

    def _bookmark(self, *, end_of_list: bool = False) -> bytes:
        resource = self._resource
        empty = normalise(resource.struct, {})
        meta: Document = {"resourceVersion": str(self._position)}
        if end_of_list:
            meta["annotations"] = {_END_OF_LIST: "true"}
        shown = {"kind": resource.kind, "apiVersion": resource.group_version, **empty, "metadata": meta}
        if self._table:
            shown = table_of(resource, [], version=self._table, revision=self._position, now=0.0, headed=False)
            shown["rows"] = [bookmark_row(resource, self._table, meta)]
        encoded = encode(shown)
        if self._is_partial:
            encoded = self._opening + metadata_only.trimmed(encoded)[1:]
        return b'{"type":"BOOKMARK","object":%b}\n' % encoded
