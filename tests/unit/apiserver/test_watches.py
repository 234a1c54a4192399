"""A watcher receives everything of its selection once, in order, on a slow connection, too."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.apiserver.api.deliveries import Deliveries
from nodeagent.apiserver.api.request_target import Shape
from nodeagent.apiserver.api.watches import Stream, Watch, WatchRequest
from nodeagent.apiserver.machinery.loop_time import LoopTime
from nodeagent.apiserver.machinery.reading import Selection
from nodeagent.apiserver.machinery.selectors import parse_labels
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import Change, Event, Record, draft
from nodeagent.apiserver.storage.store import Store, Window
from nodeagent.kinds.catalog import all_kinds

CONFIG_MAPS = all_kinds().named("configmaps")
DEADLINE_SECONDS = 60.0


class Clock:
    """The store's time stands still unless moved; the loop's own is real."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Connection:
    """Takes frames at once while `busy` says no; what is written while it says yes has to be waited for."""

    def __init__(self, busy: Iterable[bool] = ()) -> None:
        self._busy = iter(busy)
        self.at_once = 0
        self.frames: list[Any] = []
        self._begun = b""
        self._more = asyncio.Event()

    def write_now(self, frames: bytes) -> bool:
        if next(self._busy, False):
            return False
        self.at_once += 1
        self._take(frames)
        return True

    async def write(self, frames: bytes | memoryview) -> None:
        self._take(bytes(frames))
        await asyncio.sleep(0)

    def _take(self, frames: bytes) -> None:
        *lines, self._begun = (self._begun + frames).split(b"\n")
        self.frames += [json.loads(line) for line in lines]
        self._more.set()

    async def until(self, enough: Callable[[list[Any]], bool]) -> list[Any]:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not enough(self.frames):
                self._more.clear()
                await self._more.wait()
        return self.frames


class World:
    """A store, and watches of its config maps."""

    def __init__(self, store: Store, clock: Clock, group: asyncio.TaskGroup) -> None:
        self.store = store
        self.clock = clock
        self._group = group
        self._deliveries = Deliveries(clock.monotonic)
        self._loop_time = LoopTime(clock.monotonic)
        self._stopping = asyncio.Event()

    def watch(self, connection: Stream, **request: Any) -> asyncio.Task[None]:
        asked = WatchRequest(**{"selection": Selection(), "since": self.store.revision, **request})
        watch = Watch(
            self.store,
            CONFIG_MAPS,
            asked,
            stopping=self._stopping,
            clock=self.clock,
            deliveries=self._deliveries,
            loop_time=self._loop_time,
            bookmark_every_seconds=60.0,
        )
        return self._group.create_task(watch.run(connection))

    async def put(self, name: str, collection: str = "configmaps", **labels: str) -> int:
        body = draft({"metadata": {"name": name, "resourceVersion": "0", "labels": labels}})
        (record,) = await self.store.commit([Change(collection, f"default/{name}", None, body)])
        return record.revision

    def stop(self) -> None:
        self._stopping.set()
        self.store.wake()


@asynccontextmanager
async def world(**window: int) -> AsyncIterator[World]:
    clock = Clock()
    async with Store(Log(":memory:"), clock=clock, window=Window(**window)) as store, asyncio.TaskGroup() as group:
        made = World(store, clock, group)
        yield made
        made.stop()


def versions(frames: list[Any]) -> list[int]:
    return [int(frame["object"]["metadata"]["resourceVersion"]) for frame in frames]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=12), st.lists(st.booleans(), max_size=30))
def test_every_change_once_and_in_order_on_a_connection_that_falls_behind(bursts: list[int], busy: list[bool]) -> None:
    async def scenario() -> None:
        async with world() as made:
            connection = Connection(busy)
            made.watch(connection)
            written: list[int] = []
            for burst in bursts:
                written += await asyncio.gather(*(made.put(f"c{n}") for n in range(burst)))
            frames = await connection.until(lambda frames: len(frames) >= len(written))
            assert versions(frames) == written

    asyncio.run(scenario())


def test_a_watcher_that_keeps_up_is_written_to_without_a_task_of_its_own() -> None:
    async def scenario() -> None:
        async with world() as made:
            connections = [Connection() for _ in range(1000)]
            for connection in connections:
                made.watch(connection)
            await asyncio.sleep(0)
            written = [await made.put("a"), await made.put("a"), await made.put("b")]
            for connection in connections:
                await connection.until(lambda frames: len(frames) == len(written))
                assert versions(connection.frames) == written
                assert 1 <= connection.at_once <= len(written)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_watcher_of_metadata_leaves_nothing_at_the_events(version: str) -> None:
    async def scenario() -> None:
        async with world() as made:
            written = [await made.put("a"), await made.put("a", tier="front"), await made.put("a")]
            events = made.store.collection("configmaps").events_after(0)
            before = [kept_bytes(event) for event in events]
            shapes = [Shape("PartialObjectMetadata", version), Shape("Table", version), None]
            connections = [Connection() for _ in shapes]
            for connection, shape in zip(connections, shapes, strict=True):
                made.watch(connection, since=0, shape=shape)
            for connection in connections:
                frames = await connection.until(lambda frames: len(frames) == len(written))
                assert {frame["type"] for frame in frames} == {"ADDED", "MODIFIED"}
            assert connections[0].frames[0]["object"]["apiVersion"] == f"meta.k8s.io/{version}"
            assert [kept_bytes(event) for event in events] == before

    asyncio.run(scenario())


def kept_bytes(event: Event) -> int:
    """Bytes of what an event keeps, labels that were decoded left out."""
    kept = [event.record.body, event.before.body if event.before is not None else b"", event._gone or b""]
    return sum(sys.getsizeof(value) for value in kept) + len(event.__struct_fields__)


def test_labels_of_an_object_that_has_many_are_not_kept() -> None:
    body = draft({"metadata": {"name": "a", "resourceVersion": "0", "labels": {f"k{n}": "" for n in range(1000)}}})
    few = draft({"metadata": {"name": "a", "resourceVersion": "0", "labels": {"k": "v"}}})
    many, one = Record("default/a", 1, body), Record("default/b", 2, few)
    assert (len(many.labels), one.labels) == (1000, {"k": "v"})
    assert (many._labels, one._labels) == (None, {"k": "v"})


def test_a_selective_watcher_receives_its_selection_only() -> None:
    async def scenario() -> None:
        async with world() as made:
            connection = Connection()
            made.watch(connection, selection=Selection("default", labels=parse_labels("tier=front")))
            await made.put("a")
            entered = await made.put("a", tier="front")
            left = await made.put("a", tier="back")
            frames = await connection.until(lambda frames: len(frames) == 2)
            assert [(frame["type"], version) for frame, version in zip(frames, versions(frames), strict=True)] == [
                ("ADDED", entered),
                ("DELETED", left),
            ]

    asyncio.run(scenario())


def test_a_quiet_resource_is_watched_on_while_history_passes_by() -> None:
    async def scenario() -> None:
        async with world(seconds=10) as made:
            connection = Connection()
            made.watch(connection)
            await asyncio.sleep(0)
            for _ in range(5):
                made.clock.now += 20
                await made.put("other", collection="secrets")
                await made.store.compact()
            assert made.store.floor > 0
            seen = await made.put("a")
            assert versions(await connection.until(lambda frames: len(frames) == 1)) == [seen]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "since", [pytest.param(1, id="from before the history"), pytest.param(99, id="from the future")]
)
def test_a_watch_from_a_revision_that_cannot_be_had_ends_with_an_error(since: int) -> None:
    async def scenario() -> None:
        async with world(seconds=10) as made:
            for _ in range(3):
                made.clock.now += 20
                await made.put("a")
            await made.store.compact()
            connection = Connection()
            async with asyncio.timeout(DEADLINE_SECONDS):
                await made.watch(connection, since=since)
            assert [frame["type"] for frame in connection.frames] == ["ERROR"]

    asyncio.run(scenario())


def test_a_watcher_behind_the_history_is_informed() -> None:
    async def scenario() -> None:
        async with world(seconds=10) as made:

            class Stuck(Connection):
                """Takes the first frames only when allowed to."""

                def __init__(self) -> None:
                    super().__init__(busy=[True])
                    self.allowed = asyncio.Event()

                async def write(self, frames: bytes | memoryview) -> None:
                    await super().write(frames)
                    await self.allowed.wait()

            connection = Stuck()
            made.watch(connection)
            await asyncio.sleep(0)
            await made.put("a")
            await connection.until(lambda frames: len(frames) == 1)
            for _ in range(3):
                made.clock.now += 20
                await made.put("a")
            await made.store.compact()
            connection.allowed.set()
            frames = await connection.until(lambda frames: len(frames) == 2)
            assert (frames[1]["type"], frames[1]["object"]["code"]) == ("ERROR", 410)

    asyncio.run(scenario())


class Still:
    """A connection that takes nothing until it is let go on."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.asked: list[int] = []
        self.text = b""
        self._more = asyncio.Event()

    def write_now(self, frames: bytes) -> bool:
        return False

    async def write(self, frames: bytes | memoryview) -> None:
        self.asked.append(len(frames))
        self._more.set()
        await self.goes_on.wait()
        self.text += frames
        self._more.set()

    async def until(self, enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not enough():
                self._more.clear()
                await self._more.wait()


OBJECTS = 12


@pytest.mark.parametrize("is_new", [True, False], ids=["what is there", "what was changed"])
def test_a_watcher_that_reads_nothing_is_given_little_at_a_time(is_new: bool) -> None:
    async def story() -> None:
        async with world() as w:
            begins = w.store.revision
            for number in range(OBJECTS):
                data = {"x": "y" * (400_000 if number % 2 else 100_000)}
                body = draft({"metadata": {"name": str(number), "resourceVersion": "0"}, "data": data})
                await w.store.commit([Change("configmaps", f"default/{number}", None, body)])
            stream = Still()
            w.watch(stream, since=None if is_new else begins)
            await stream.until(lambda: len(stream.asked) == 1)
            stream.goes_on.set()
            await stream.until(lambda: stream.text.count(b"\n") == OBJECTS)
            last = await w.put("last")
            await stream.until(lambda: stream.text.count(b"\n") > OBJECTS)
            assert max(stream.asked) < 600_000
            seen = [json.loads(line) for line in stream.text.splitlines()]
            assert {frame["type"] for frame in seen} == {"ADDED"}
            names = [frame["object"]["metadata"]["name"] for frame in seen]
            assert sorted(names) == sorted([*map(str, range(OBJECTS)), "last"])
            assert versions(seen)[-1] == last
            assert {frame["object"]["kind"] for frame in seen} == {"ConfigMap"}

    asyncio.run(story())


@pytest.mark.parametrize("size", range(1000, 1060, 4))
def test_small_events_are_written_as_one_piece(size: int) -> None:
    """Also where what surrounds an event carries its batch over the bound: a write for each costs a record of TLS each."""

    async def story() -> None:
        async with world() as w:
            since = w.store.revision
            for number in range(300):
                meta = {"name": f"{number:03}", "resourceVersion": "0"}
                body = draft({"metadata": meta, "data": {"x": "y" * size}})
                await w.store.commit([Change("configmaps", f"default/{number:03}", None, body)])
            stream = Still()
            stream.goes_on.set()
            w.watch(stream, since=since)
            await stream.until(lambda: stream.text.count(b"\n") == 300)
            assert len(stream.asked) <= 3

    asyncio.run(story())


def test_events_of_one_revision_are_delivered_together() -> None:
    async def story() -> None:
        async with world() as w:
            since = w.store.revision
            bodies = [
                draft({"metadata": {"name": str(n), "resourceVersion": "0"}, "data": {"x": "y" * 200_000}})
                for n in range(4)
            ]
            await w.store.commit([Change("configmaps", f"default/{n}", None, body) for n, body in enumerate(bodies)])
            connection = Connection([True])
            w.watch(connection, since=since)
            seen = await connection.until(lambda frames: len(frames) >= 4)
            assert sorted(frame["object"]["metadata"]["name"] for frame in seen) == ["0", "1", "2", "3"]

    asyncio.run(story())
