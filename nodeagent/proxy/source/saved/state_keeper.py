"""Writes the state of the cluster to a file while it is followed."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from nodeagent.model.objects import EndpointSlice, Namespace, Node, ObjectMeta, Service, ServiceCIDR
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.saved.saved_bytes import SavedObject, encode
from nodeagent.proxy.source.saved.state_file import write_state
from nodeagent.proxy.source.saved.state_origin import StateOrigin

PAUSE_SECONDS = 10.0
"""The shortest pause between two writes."""
PAUSE_SHARE = 100
"""A pause is also this many times as long as the write before it, so that writing takes 1 % of a processor at most."""
RENEW_SECONDS = 3600.0
"""A file whose contents have not changed for this long is written again with the present time, because its age counts."""

logger = logging.getLogger(__name__)


class StateKeeper:
    """Saves the store, and the namespaces if they are followed.

    wall: the present time in UTC. report: called with all problems of the file.
    """

    def __init__(
        self,
        path: Path,
        origin: StateOrigin,
        store: ClusterStore,
        namespaces: NamespaceNames | None,
        *,
        wall: Callable[[], datetime],
        report: Callable[[Iterable[Problem]], None],
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._path = path
        self._origin = origin
        self._store = store
        self._namespaces = namespaces
        self._wall = wall
        self._report = report
        self._pause_seconds = pause_seconds
        self._saved: tuple[int, frozenset[str] | None] | None = None
        self._saved_at = float("-inf")

    async def run(self) -> None:
        """Saves what changed after each pause, and once more at the end. Ends only by cancellation."""
        pause = self._pause_seconds
        try:
            while True:
                await asyncio.sleep(pause)
                pause = max(self._pause_seconds, PAUSE_SHARE * await self._save())
        finally:
            await self._save()

    async def _save(self) -> float:
        """Saves the state if it is complete and differs from the last one saved. Returns how many seconds that took."""
        names = None if self._namespaces is None else self._namespaces.names
        latest = (self._store.version, names)
        began = time.monotonic()
        unchanged = latest == self._saved and began < self._saved_at + RENEW_SECONDS
        if unchanged or not self._store.is_current or (self._namespaces is not None and names is None):
            return 0.0
        objects: list[list[SavedObject]] = [
            [*self._store.held(Service)],
            [*self._store.held(EndpointSlice)],
            [*self._store.held(Node)],
            [*self._store.held(ServiceCIDR)],
            [Namespace(ObjectMeta(name=name)) for name in sorted(names or ())],
        ]
        try:
            await asyncio.to_thread(self._write, objects)
        except OSError as error:
            detail = (
                f"cannot be written: {error.strerror or error}; after a restart without an API server this node would not know "
                "the present Services; see the disk and the directory's owner (source.snapshot names another place)"
            )
            self._report((Problem(f"saved state {self._path}", "NotSaved", detail),))
        else:
            self._saved, self._saved_at = latest, began
            self._report(())
        return time.monotonic() - began

    def _write(self, objects: list[list[SavedObject]]) -> None:
        content = encode(self._origin, self._wall(), objects)
        write_state(self._path, content)
        logger.debug("state saved file=%s bytes=%d", self._path, len(content))
