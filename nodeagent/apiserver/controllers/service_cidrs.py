"""The life of a ServiceCIDR: ready once it is created, and deleted only when no address depends on it
(pkg/controller/servicecidrs).

A finalizer holds it until every allocated address in it is also in another range. The server's own range, with which it was
started, has no finalizer and is created again when it is deleted.
"""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from ipaddress import ip_address
from typing import Final

from nodeagent.apiserver.addresses.allocation import ADDRESSES
from nodeagent.apiserver.addresses.ranges import Network
from nodeagent.apiserver.addresses.service_ranges import DEFAULT, RANGES, is_ready
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.storage.records import Event, EventKind
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.address_texts import parse_cidr
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.description.resources import STATUS, Catalog

FINALIZER: Final = "networking.k8s.io/service-cidr-finalizer"
_MANAGER: Final = "service-cidr-controller"
_HELD: Final = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
_GRACE_SECONDS: Final = 2.0
"""After the deletion, whose time is in whole seconds, so that other servers on the same store receive it first."""


class ServiceCidrs:
    """Reconciles one ServiceCIDR by name. `restore_default` creates the server's own again."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        catalog: Catalog,
        restore_default: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._registry = registry
        self._resource = catalog.named(RANGES, "networking.k8s.io")
        self._restore_default = restore_default
        self._clock = clock

    def concerns(self, event: Event) -> Iterable[str]:
        """Returns the range itself, and deleted ones that wait until another range has their addresses."""
        return {event.record.path, *self._deleted()}

    def concerns_address(self, event: Event) -> Iterable[str]:
        """Returns the deleted ranges that wait until their addresses are free."""
        return self._deleted() if event.kind is EventKind.DELETED else ()

    async def reconcile(self, name: str) -> float | None:
        """Sets finalizer and condition, or finishes the deletion. Returns the seconds after which to check again, or None."""
        record = self._store.get(RANGES, name)
        if name == DEFAULT:
            if record is None:
                await self._restore_default()
            return None
        if record is None:
            return None
        found = record.document()
        if found["metadata"].get("deletionTimestamp"):
            return await self._finish(name, found)
        await self._prepare(name, found)
        return None

    async def _prepare(self, name: str, found: Document) -> None:
        finalizers = found["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            await self._set_finalizers(name, [*finalizers, FINALIZER])
        if not is_ready(found):
            await self._set_condition(name, {"status": "True", "message": "Kubernetes Service CIDR is ready"})

    async def _finish(self, name: str, found: Document) -> float | None:
        finalizers = found["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            return None
        if self._is_held(name, found):
            if is_ready(found) is not False:
                await self._set_condition(name, {"status": "False", "reason": "Terminating", "message": _HELD})
            return None
        marked = datetime.fromisoformat(found["metadata"]["deletionTimestamp"]).timestamp()
        left = marked + _GRACE_SECONDS - self._clock()
        if left > 0:
            return left
        await self._set_finalizers(name, [kept for kept in finalizers if kept != FINALIZER])
        return None

    def _deleted(self) -> set[str]:
        records = self._store.collection(RANGES).records.values()
        return {record.path for record in records if b'"deletionTimestamp"' in record.body}

    def _is_held(self, name: str, found: Document) -> bool:
        """Returns whether an allocated address is in this range and in no other that stays."""
        own = _networks(found)
        others = [
            record.document() for record in self._store.collection(RANGES).records.values() if record.path != name
        ]
        staying = [n for other in others if not other["metadata"].get("deletionTimestamp") for n in _networks(other)]
        addresses = map(ip_address, self._store.collection(ADDRESSES).records)
        return any(any(a in n for n in own) and not any(a in n for n in staying) for a in addresses)

    async def _set_finalizers(self, name: str, finalizers: list[str]) -> None:
        def changed(live: Document) -> Document:
            return {**live, "metadata": {**live["metadata"], "finalizers": finalizers}}

        await self._registry.patch(self._resource, "", name, changed, WriteOptions(manager=_MANAGER))

    async def _set_condition(self, name: str, ready: Document) -> None:
        condition = {"type": "Ready", "lastTransitionTime": rfc3339(int(self._clock())), **ready}
        status: Document = {"status": {"conditions": [condition]}}
        await self._registry.apply(self._resource, "", name, status, WriteOptions(manager=_MANAGER, force=True), STATUS)


def _networks(service_cidr: Document) -> list[Network]:
    return [network for network in map(parse_cidr, service_cidr["spec"].get("cidrs") or []) if network is not None]
