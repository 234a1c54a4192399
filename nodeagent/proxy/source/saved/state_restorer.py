"""Puts the saved state into the store if no API server answers at the start."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from nodeagent.model.objects import EndpointSlice, Namespace, Node, Service, ServiceCIDR, StoredObject
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.following import Following
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_store import ClusterStore, Listing
from nodeagent.proxy.source.saved.saved_bytes import decode
from nodeagent.proxy.source.saved.state_file import read_state
from nodeagent.proxy.source.saved.state_origin import StateOrigin, StateUnusable, check, moment

SILENCE_SECONDS = 1.0
"""A server that answers slowly is waited for until nothing was received for this long."""
FAILURE_SECONDS = 0.25
"""A server that refuses connections is waited for this long: a server that restarts is back by then, or takes much longer."""
LOOK_SECONDS = 0.05

logger = logging.getLogger(__name__)


class StateRestorer:
    """Restores once, or never.

    following: the resources of the API server, and when something was last received of each.
    wall: the present time in UTC. report: called with all problems of the saved state.
    """

    def __init__(
        self,
        path: Path,
        origin: StateOrigin,
        store: ClusterStore,
        namespaces: NamespaceNames | None,
        *,
        longest: timedelta,
        following: Callable[[], Collection[Following]],
        wall: Callable[[], datetime],
        report: Callable[[Iterable[Problem]], None],
    ) -> None:
        self._path = path
        self._origin = origin
        self._store = store
        self._namespaces = namespaces
        self._longest = longest
        self._following = following
        self._wall = wall
        self._report = report
        self.saved: datetime | None = None
        """The time at which the served state was current; None if it comes from an API server."""

    async def run(self) -> None:
        """Restores the state if no server answers. Ends when the first full lists are complete."""
        if not await self._is_answered():
            try:
                await self._restore()
            except (StateUnusable, OSError) as error:
                reason = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
                self._report_unusable(reason)
        while not self._store.is_current:
            if self.saved is not None:
                self._report(_outdated(self._store.restored, self.saved, self._path))
            await asyncio.sleep(LOOK_SECONDS)
        self.saved = None
        self._report(())

    async def _is_answered(self) -> bool:
        """Returns True when the first full lists are complete, False as soon as the server has been silent for too long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self._store.is_current:
            received = max((one.last_received or began for one in self._following()), default=began)
            patience = FAILURE_SECONDS if self._store.problems else SILENCE_SECONDS
            if loop.time() - received >= patience:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    async def _restore(self) -> None:
        content = await asyncio.to_thread(read_state, self._path)
        if content is None:
            logger.warning("no API server answers, and there is no saved state yet: file=%s", self._path)
            return
        head, batches = await asyncio.to_thread(decode, content)
        check(head.origin, head.saved, self._origin, self._wall(), self._longest)
        listings = {kind: self._store.listing(kind) for kind in (Service, EndpointSlice, Node, ServiceCIDR)}
        names: set[str] = set()
        for batch in batches:
            for obj in batch:
                if isinstance(obj, Namespace):
                    names.add(obj.metadata.name)
                else:
                    _add(listings[type(obj)], obj)
            await asyncio.sleep(0)  # each batch is a few milliseconds of the loop
        if self._store.is_current:
            return
        self.saved = head.saved
        if self._namespaces is not None and self._namespaces.names is None and names:
            self._namespaces.replace(names)
        self._store.restore(listings.values())
        logger.warning("no API server answers: using the state of %s file=%s", moment(head.saved), self._path)

    def _report_unusable(self, reason: str) -> None:
        detail = f"it {reason}; it is ignored, and nothing is programmed before an API server answers"
        logger.warning("saved state not used: %s %s", self._path, reason)
        self._report((Problem(f"saved state {self._path}", "NotUsed", detail),))


def _outdated(kinds: Sequence[str], saved: datetime, path: Path) -> Iterator[Problem]:
    if kinds:
        detail = (
            f"it has not listed {', '.join(kinds)} since the start: those of {moment(saved)} are used, saved in {path}, and what "
            "changed since then is not known"
        )
        yield Problem("API server", "NotListedSinceStart", detail)


def _add(listing: Listing[StoredObject], obj: StoredObject) -> None:
    listing.add((obj,))
