"""Reports that the store was full, in an Event about the `kubernetes` Service, once there is room for one."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from nodeagent.apiserver.controllers.kubernetes_service import NAME, NAMESPACE
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.storage.records import Precondition, StorageFailed, StorageFull
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.description.resources import Catalog
from nodeagent.kinds.description.status import ApiError

logger = logging.getLogger(__name__)
_REASON: Final = "StoreFull"
_COMPONENT: Final = "nodeagent-apiserver"
_CHECK_EVERY_SECONDS: Final = 1.0
_CHECKS_WITH_ROOM: Final = 2
"""A store that is nearly full may switch between full and not full with each write."""


class StoreSpace:
    """Reports for one server, at `address`: others may not have noticed. `clock` returns seconds since 1970."""

    def __init__(
        self, store: Store, registry: Registry, catalog: Catalog, *, address: str, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._registry = registry
        self._events = catalog.named("events")
        self._address = address
        self._clock = clock
        self._began = 0.0
        self._ended = 0.0
        self._checks_with_room = 0

    async def run(self) -> None:
        """Checks every second, until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(_CHECK_EVERY_SECONDS)

    async def check(self) -> None:
        """Records that the store is full, or writes the Event that it was."""
        if self._store.short:
            if not self._began:
                logger.warning(
                    "the store is full: only writes that free space are accepted; free space or raise the limit"
                )
            self._began = self._began or self._clock()
            self._checks_with_room = 0
            return
        if not self._began:
            return
        if self._checks_with_room == 0:
            self._ended = self._clock()
            logger.info("the store has room again")
        self._checks_with_room += 1
        if self._checks_with_room < _CHECKS_WITH_ROOM:
            return
        try:
            await self._registry.create(self._events, NAMESPACE, self._event(), WriteOptions(manager=_COMPONENT))
        except (ApiError, Precondition, StorageFailed, StorageFull) as error:
            logger.debug("event not written reason=%s error=%s", _REASON, error)
            return
        self._began, self._checks_with_room = 0.0, 0

    def _event(self) -> Document:
        began, ended = rfc3339(int(self._began)), rfc3339(int(self._ended))
        return {
            "metadata": {"name": f"{NAME}.{int(self._began * 1_000_000):x}"},
            "involvedObject": {"kind": "Service", "apiVersion": "v1", "namespace": NAMESPACE, "name": NAME},
            "type": "Warning",
            "reason": _REASON,
            "message": f"The store of the API server at {self._address} was full from {began} to {ended}: "
            "writes were answered 507, Events about other things are missing.",
            "source": {"component": _COMPONENT, "host": self._address},
            "firstTimestamp": began,
            "lastTimestamp": ended,
        }
