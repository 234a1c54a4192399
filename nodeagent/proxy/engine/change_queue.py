"""Collects the keys of changed objects: keys only, so that any number of updates of one service is one entry."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from nodeagent.model.names import ObjectKey


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What changed since the last pass: dirty services, whether the node's own sets or the service interface are dirty, and
    when the oldest change came (loop time)."""

    services: frozenset[ObjectKey]
    node: bool
    interface: bool
    oldest: float | None

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return not self.services and not self.node and not self.interface


class ChangeQueue:
    """The keys that the store marked as changed; each pass takes them all. Also knows when the first full lists arrived."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._services: set[ObjectKey] = set()
        self._node = False
        self._interface = False
        self._oldest: float | None = None
        self._taken: float | None = None
        self._wake = asyncio.Event()
        self._synced = asyncio.Event()
        self._all_listed = asyncio.Event()

    @property
    def oldest(self) -> float | None:
        """When the oldest change came that no pass has finished yet (it is queued here, or the pass that took it still runs).
        None if there is no such change."""
        return self._oldest if self._taken is None else self._taken

    @property
    def pending(self) -> int:
        """The number of services in the queue."""
        return len(self._services)

    def is_dirty(self, key: ObjectKey) -> bool:
        """Returns whether a service changed since the last `take`."""
        return key in self._services

    def service_changed(self, key: ObjectKey) -> None:
        """Marks a service as dirty: it, or a slice of it, changed."""
        self._services.add(key)
        self._mark()

    def node_changed(self) -> None:
        """Marks the node as dirty: the Node object changed. Wakes the pass."""
        self._node = True
        self._mark()

    def service_cidrs_changed(self) -> None:
        """Marks the node as dirty: the service CIDRs changed. Wakes the pass."""
        self.node_changed()

    def interface_changed(self) -> None:
        """Marks the service interface as dirty: another process changed it. Wakes the pass."""
        self._interface = True
        self._mark()

    def synced(self) -> None:
        """Called when Services and slices have been listed in full."""
        self._synced.set()

    def all_listed(self) -> None:
        """Called when the Node and the service CIDRs have been listed too."""
        self._all_listed.set()

    async def wait_synced(self, patience: float = 0.0) -> None:
        """Waits until Services and slices are listed, and then for at most `patience` seconds until Node and CIDRs are. Without
        these a pass over adopted tables would remove node ports and pod networks, and restore them soon after."""
        await self._synced.wait()
        try:
            async with asyncio.timeout(patience):
                await self._all_listed.wait()
        except TimeoutError:
            return

    async def wait_until(self, deadline: float) -> bool:
        """Returns whether something changed that no pass has taken, as soon as it did, or False at the deadline (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._wake.wait()
        except TimeoutError:
            return False

    def take(self) -> ChangeSet:
        """Returns everything that changed and empties the queue. Call it before reading the snapshot: what comes later is a new entry."""
        taken = ChangeSet(frozenset(self._services), self._node, self._interface, self._oldest)
        self._taken = self._oldest
        self._services.clear()
        self._node, self._interface, self._oldest = False, False, None
        self._wake.clear()
        return taken

    def finish(self) -> None:
        """Called when the pass that took the changes has ended, also if it failed; its report says which."""
        self._taken = None

    def _mark(self) -> None:
        if self._oldest is None:
            self._oldest = self._clock()
            self._wake.set()
