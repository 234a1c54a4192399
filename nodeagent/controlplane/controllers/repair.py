"""Makes what is recorded as allocated agree with what services hold (pkg/registry/core/service ipallocator and portallocator repair).

Services and allocations are written together, so this finds something only after a restore, an edit by hand, or a bug: a
missing record is written again, one whose holder does not hold it is removed. An address that somebody deletes while its
service has it is written again at once, as another service may ask for it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from nodeagent.controlplane.addresses.allocation import ADDRESSES, NODE_PORTS, holder_of
from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.kinds.service.addresses import addresses_of, node_ports_of
from nodeagent.controlplane.storage.records import (
    Change,
    Event,
    EventKind,
    Precondition,
    StorageFailed,
    StorageFull,
    draft,
)
from nodeagent.controlplane.storage.store import Store

logger = logging.getLogger(__name__)
_EVERY_SECONDS: Final = 180.0
_SERVICES: Final = "services"


class Repair:
    """Looks at everything at start and every three minutes, at one service when its address was deleted.

    `describe` builds an IPAddress object.
    """

    def __init__(self, store: Store, describe: Callable[[str, str, str], bytes]) -> None:
        self._store = store
        self._describe = describe

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(_EVERY_SECONDS)

    def concerns(self, event: Event) -> Iterable[str]:
        """The service that had an address that is gone."""
        if event.kind is not EventKind.DELETED:
            return ()
        # What a deletion says of an object may be short of its spec.
        document = (event.before or event.record).document()
        return (holder_of(ADDRESSES, document),) if self._is_ours(ADDRESSES, document) else ()

    async def reconcile(self, path: str) -> None:
        """Writes the addresses of one service that are missing. Raises what committing does."""
        service = self._store.get(_SERVICES, path)
        if service is None:
            return
        for address in addresses_of(service.document()):
            if self._store.get(ADDRESSES, address) is None:
                await self._store.commit([Change(ADDRESSES, address, 0, self._body(ADDRESSES, address, path))])
                logger.warning("address written again that was deleted address=%s service=%s", address, path)

    async def once(self) -> int:
        """One pass; returns how many records were put right."""
        changes = self._corrections()
        done = 0
        for change in changes:
            try:
                await self._store.commit([change])
            except (Precondition, StorageFull, StorageFailed):
                continue
            done += 1
        if done:
            logger.warning("allocations repaired count=%d", done)
        return done

    def _corrections(self) -> list[Change]:
        held: dict[tuple[str, str], str] = {}
        for record in self._store.collection(_SERVICES).records.values():
            service = record.document()
            held |= {(ADDRESSES, address): record.path for address in addresses_of(service)}
            held |= {(NODE_PORTS, str(port)): record.path for port in node_ports_of(service)}
        changes = []
        for (collection, path), holder in held.items():
            found = self._store.get(collection, path)
            if found is None or holder_of(collection, found.document()) != holder:
                expected = found.revision if found is not None else 0
                changes.append(Change(collection, path, expected, self._body(collection, path, holder)))
        for collection in (ADDRESSES, NODE_PORTS):
            for path, record in self._store.collection(collection).records.items():
                if (collection, path) not in held and self._is_ours(collection, record.document()):
                    changes.append(Change(collection, path, record.revision, None, record.body))
        return changes

    def _body(self, collection: str, path: str, holder: str) -> bytes:
        if collection == ADDRESSES:
            namespace, _, name = holder.partition("/")
            return self._describe(path, namespace, name)
        return draft({"metadata": {"name": path, "resourceVersion": "0"}, "holder": holder})

    def _is_ours(self, collection: str, document: Document) -> bool:
        """An address somebody reserved by hand for something else than a service stays."""
        if collection == NODE_PORTS:
            return True
        return bool((document.get("spec", {}).get("parentRef") or {}).get("resource") == _SERVICES)
