"""The common part of controllers: events mark keys as dirty, workers reconcile dirty keys, failures are retried.

A reconcile function reads the present state, never the event that woke it, so any number of events may become one call.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from nodeagent.apiserver.storage.records import Compacted, Event, EventKind, Precondition, StorageFailed, StorageFull
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.status import ApiError

logger = logging.getLogger(__name__)
_FIRST_RETRY_SECONDS: Final = 0.05
_LAST_RETRY_SECONDS: Final = 30.0
_BATCH: Final = 200
_QUIET_FAILURES: Final = 3

Keys: TypeAlias = Callable[[Event], Iterable[str]]
"""Returns the keys that an event concerns."""


class Controller:
    """One loop.

    sources: for each collection, which keys an event concerns.
    reconcile: brings the object of a key to its desired state; may return seconds after which to call it again.
    always: keys that are reconciled when the loop begins even if no object has them, because then one must be created.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        sources: Mapping[str, Keys],
        reconcile: Callable[[str], Awaitable[float | None]],
        *,
        workers: int = 4,
        always: Iterable[str] = (),
    ) -> None:
        self.name = name
        self._store = store
        self._sources = sources
        self._reconcile = reconcile
        self._workers = workers
        self._dirty: dict[str, None] = dict.fromkeys(always)
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def mark(self, key: str) -> None:
        """Marks the key as dirty."""
        self._dirty[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for collection, keys in self._sources.items():
                    group.create_task(self._follow(collection, keys), name=f"{self.name}-{collection}")
                for number in range(self._workers):
                    group.create_task(self._work(), name=f"{self.name}-{number}")
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _follow(self, name: str, keys: Keys) -> None:
        collection = self._store.collection(name)
        waiter = asyncio.Event()
        collection.register(waiter.set)
        try:
            position = self._mark_all(name, keys)
            while True:
                waiter.clear()
                try:
                    self._store.check_revision(position)
                except Compacted:
                    position = self._mark_all(name, keys)
                events = collection.events_after(position, _BATCH)
                for event in events:
                    self._mark_keys(keys, event)
                if events:
                    position = events[-1].revision
                    await asyncio.sleep(0)
                else:
                    await waiter.wait()
        finally:
            collection.unregister(waiter.set)

    def _mark_all(self, name: str, keys: Keys) -> int:
        """Marks the keys of all present objects. Returns the revision from which to follow events."""
        for record in list(self._store.collection(name).records.values()):
            self._mark_keys(keys, Event(EventKind.ADDED, record, None, 0))
        return self._store.revision

    def _mark_keys(self, keys: Keys, event: Event) -> None:
        try:
            for key in keys(event):
                self.mark(key)
        except Exception:
            logger.exception("event not understood controller=%s object=%s", self.name, event.record.path)

    async def _work(self) -> None:
        while True:
            key = next((key for key in self._dirty if key not in self._busy), None)
            if key is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            del self._dirty[key]
            self._busy.add(key)
            try:
                await self._reconcile_key(key)
            finally:
                self._busy.discard(key)
                self._wake.set()
            await asyncio.sleep(0)  # a reconcile that has nothing to do never yields to the loop

    async def _reconcile_key(self, key: str) -> None:
        try:
            again = await self._reconcile(key)
        except (ApiError, Precondition, StorageFull, StorageFailed) as error:
            self._failed(key, error)
            return
        except Exception as error:
            logger.exception("reconcile broke controller=%s key=%s", self.name, key)
            self._failed(key, error)
            return
        self._failures.pop(key, None)
        if again is not None:
            self._retry_after(key, again)

    def _failed(self, key: str, error: Exception) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        if failures > _QUIET_FAILURES:
            logger.warning(
                "reconcile failed controller=%s key=%s failures=%d error=%s", self.name, key, failures, error
            )
        self._retry_after(key, min(_FIRST_RETRY_SECONDS * 2 ** min(failures, 16), _LAST_RETRY_SECONDS))

    def _retry_after(self, key: str, seconds: float) -> None:
        previous = self._timers.pop(key, None)
        if previous is not None:
            previous.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._retry, key)

    def _retry(self, key: str) -> None:
        self._timers.pop(key, None)
        self.mark(key)


def own_path(event: Event) -> Iterable[str]:
    """Returns the path of the event's own object as the only key."""
    return (event.record.path,)
