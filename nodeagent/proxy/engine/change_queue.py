"""What must be looked at again: keys only, so that any number of updates of one service is one entry."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from nodeagent.model.names import ObjectKey


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Dirty services, whether the node's own sets are dirty, whether the service interface is, and when the oldest
    change came (loop time)."""

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
        """When the oldest change came that no pass has finished: it waits here, or the pass that took it still runs.
        None if there is no such change."""
        return self._oldest if self._taken is None else self._taken

    @property
    def pending(self) -> int:
        """How many services wait."""
        return len(self._services)

    def is_dirty(self, key: ObjectKey) -> bool:
        """Whether a service changed since the last take."""
        return key in self._services

    def service_changed(self, key: ObjectKey) -> None:
        """A service, or a slice of it, changed in any way."""
        self._services.add(key)
        self._mark()

    def node_changed(self) -> None:
        """Note that the Node object is another; wakes the pass."""
        self._node = True
        self._mark()

    def service_cidrs_changed(self) -> None:
        """Note that the service CIDRs are others; wakes the pass."""
        self.node_changed()

    def interface_changed(self) -> None:
        """Somebody else changed the service interface."""
        self._interface = True
        self._mark()

    def synced(self) -> None:
        """Services and slices have been listed in full."""
        self._synced.set()

    def all_listed(self) -> None:
        """The Node and the service CIDRs have been listed too."""
        self._all_listed.set()

    async def wait_synced(self, patience: float = 0.0) -> None:
        """Until Services and slices are there, and then for so many seconds at most until Node and CIDRs are: without
        these a pass over adopted tables would take node ports and pod networks away, only to bring them back."""
        await self._synced.wait()
        try:
            async with asyncio.timeout(patience):
                await self._all_listed.wait()
        except TimeoutError:
            return

    async def wait_until(self, deadline: float) -> bool:
        """Whether something changed, that no pass has taken, before the deadline (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._wake.wait()
        except TimeoutError:
            return False

    def take(self) -> ChangeSet:
        """Everything that changed, and forget it. Take before reading the snapshot: what comes later is a new entry."""
        taken = ChangeSet(frozenset(self._services), self._node, self._interface, self._oldest)
        self._taken = self._oldest
        self._services.clear()
        self._node, self._interface, self._oldest = False, False, None
        self._wake.clear()
        return taken

    def finish(self) -> None:
        """The pass that took the changes has ended, well or not; its report says which."""
        self._taken = None

    def _mark(self) -> None:
        if self._oldest is None:
            self._oldest = self._clock()
        self._wake.set()
