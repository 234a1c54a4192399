"""Makes recorded allocations agree with what Services have (pkg/registry/core/service ipallocator and portallocator repair).

Services and allocations are written together, so there are differences only after a restore, a manual edit, or a bug; and
beside a kube-apiserver, which records an allocation before it writes its Service. A missing record is written again. A record
without a Service is removed; beside a kube-apiserver only after a while. An address that a client deletes while its Service has
it is written again at once, before another Service may request it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from nodeagent.apiserver.addresses.allocation import ADDRESSES, NODE_PORT_RECORDS, holder_of
from nodeagent.apiserver.addresses.port_bitmap import NODE_PORT_RANGE, RANGE_ALLOCATIONS, PortBitmap
from nodeagent.apiserver.addresses.ranges import PortRange, RangeRefused
from nodeagent.apiserver.live_servers import has_predecessors
from nodeagent.apiserver.storage.records import (
    Change,
    Event,
    EventKind,
    Precondition,
    StorageFailed,
    StorageFull,
)
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.service.kept_addresses import addresses_of, node_ports_of

logger = logging.getLogger(__name__)
_EVERY_SECONDS: Final = 180.0
_SERVICES: Final = "services"
_GRACE_SECONDS: Final = 60
"""If a kube-apiserver is live, a younger address may belong to a Service that is about to be written."""
_PASSES: Final = 3
"""If a kube-apiserver is live, a node port is freed after this many passes in a row that found no Service with it."""
_ATTEMPTS: Final = 32
_AT_A_TIME: Final = 100


class Repair:
    """Checks all allocations at start and every three minutes, and those of one Service when its address was deleted.

    describe: builds an IPAddress object.
    ports: the range of node ports.
    is_beside_others: returns whether a kube-apiserver uses the same storage.
    """

    def __init__(
        self,
        store: Store,
        describe: Callable[[str, str, str], bytes],
        ports: PortRange,
        clock: Callable[[], float],
        *,
        is_beside_others: Callable[[], bool],
    ) -> None:
        self._is_beside_others = is_beside_others
        self._store = store
        self._describe = describe
        self._ports = ports
        self._clock = clock
        self._unused: dict[int, int] = {}
        """Recorded node ports that no Service has, and how many passes in a row found them."""

    async def begin(self) -> None:
        """Repairs at start: afterwards every node port of a Service is recorded. Raises StorageFailed."""
        for _ in range(_ATTEMPTS):
            change = self._port_correction()
            if change is None:
                break
            try:
                await self._store.commit([change])
            except Precondition:
                continue  # another server did the same, or allocated a port
            except StorageFull:
                break  # then no port can be allocated either
        await self.run_pass()

    async def run(self) -> None:
        """Repairs every three minutes, until cancelled."""
        while True:
            await self.run_pass()
            await asyncio.sleep(_EVERY_SECONDS)

    def concerns(self, event: Event) -> Iterable[str]:
        """Returns the Service that had an address that was deleted."""
        if event.kind is not EventKind.DELETED:
            return ()
        # The record of a deletion may lack the spec.
        document = (event.before or event.record).document()
        return (holder_of(ADDRESSES, document),) if _is_of_service(document) else ()

    async def reconcile(self, path: str) -> None:
        """Writes missing addresses of one Service. Raises what committing raises."""
        service = self._store.get(_SERVICES, path)
        if service is None:
            return
        for address in addresses_of(service.document()):
            if self._store.get(ADDRESSES, address) is None:
                await self._store.commit([Change(ADDRESSES, address, 0, self._address(address, path))])
                logger.warning("a deleted address was restored address=%s service=%s", address, path)

    async def run_pass(self) -> int:
        """Runs one pass; returns how many records it corrected."""
        self._count_unused()
        ports = self._port_correction()
        done = 0
        for changes in [*([[ports]] if ports is not None else []), *([change] for change in self._corrections())]:
            done += await self._commit(changes)
        if done:
            logger.warning("allocations repaired count=%d", done)
        if not has_predecessors(self._store):
            records = list(self._store.collection(NODE_PORT_RECORDS).records.values())
            for start in range(0, len(records), _AT_A_TIME):
                part = records[start : start + _AT_A_TIME]
                await self._commit([Change(NODE_PORT_RECORDS, one.path, one.revision, None, one.body) for one in part])
        return done

    async def _commit(self, changes: list[Change]) -> bool:
        try:
            await self._store.commit(changes)
        except (Precondition, StorageFull, StorageFailed):
            return False
        return True

    def _corrections(self) -> list[Change]:
        held: dict[str, str] = {}
        for record in self._store.collection(_SERVICES).records.values():
            held |= dict.fromkeys(addresses_of(record.document()), record.path)
        changes = []
        for address, holder in held.items():
            found = self._store.get(ADDRESSES, address)
            if found is None or holder_of(ADDRESSES, found.document()) != holder:
                expected = found.revision if found is not None else 0
                changes.append(Change(ADDRESSES, address, expected, self._address(address, holder)))
        old = rfc3339(int(self._clock()) - (_GRACE_SECONDS if self._is_beside_others() else 0))
        for address, record in self._store.collection(ADDRESSES).records.items():
            # An address that a user reserved for something other than a Service stays.
            document = record.document()
            is_old = document["metadata"].get("creationTimestamp", "") <= old
            if address not in held and is_old and _is_of_service(document):
                changes.append(Change(ADDRESSES, address, record.revision, None, record.body))
        ports = self._held_ports()
        for path, record in self._store.collection(NODE_PORT_RECORDS).records.items():
            if int(path) not in ports:
                changes.append(Change(NODE_PORT_RECORDS, path, record.revision, None, record.body))
        return changes

    def _held_ports(self) -> set[int]:
        services = self._store.collection(_SERVICES).records.values()
        return {port for service in services for port in node_ports_of(service.document())}

    def _recorded(self) -> PortBitmap | None:
        record = self._store.get(RANGE_ALLOCATIONS, NODE_PORT_RANGE)
        try:
            return PortBitmap.read(record.document()) if record is not None else None
        except RangeRefused:
            return None

    def _count_unused(self) -> None:
        recorded = self._recorded() or ()
        held = self._held_ports()
        self._unused = {port: self._unused.get(port, 0) + 1 for port in recorded if port not in held}

    def _port_correction(self) -> Change | None:
        record = self._store.get(RANGE_ALLOCATIONS, NODE_PORT_RANGE)
        recorded = self._recorded()
        passes = _PASSES if self._is_beside_others() else 0
        waiting = {port for port in recorded or () if self._unused.get(port, 1) < passes}
        wanted = PortBitmap.of(self._ports, self._held_ports() | waiting)
        if wanted == recorded:
            return None
        return Change(RANGE_ALLOCATIONS, NODE_PORT_RANGE, record.revision if record is not None else 0, wanted.draft())

    def _address(self, address: str, holder: str) -> bytes:
        namespace, _, name = holder.partition("/")
        return self._describe(address, namespace, name)


def _is_of_service(document: Document) -> bool:
    return bool((document.get("spec", {}).get("parentRef") or {}).get("resource") == _SERVICES)
