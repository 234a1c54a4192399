"""Mirrors Endpoints that users write into EndpointSlices (pkg/controller/endpointslicemirroring).

A function given to the constructor converts an Endpoints object to slices; this module keeps the stored slices equal to its
result.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from nodeagent.apiserver.controllers.endpoints_controller import SliceIndex, SliceWriter
from nodeagent.apiserver.controllers.slice_plan import Group, group_of, plan_slices
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.storage.records import Event
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog
from nodeagent.model.objects import Endpoints, EndpointSlice, Service

MIRROR_CONTROLLER: Final = "endpointslicemirroring-controller.k8s.io"
_OURS: Final = "endpoints.kubernetes.io/managed-by"

Mirror = Callable[[Endpoints, Service | None], tuple[EndpointSlice, ...]]
"""Converts Endpoints, and the Service of the same name if there is one, to equivalent slices."""


class Mirroring:
    """Reconciles one Endpoints object by path."""

    def __init__(self, store: Store, registry: Registry, catalog: Catalog, mirror: Mirror) -> None:
        self._store = store
        self._mirror = mirror
        self._writer = SliceWriter(registry, catalog, MIRROR_CONTROLLER)
        self._endpoints = msgspec.json.Decoder(Endpoints)
        self._service = msgspec.json.Decoder(Service)
        self.slices = SliceIndex(store, MIRROR_CONTROLLER)

    def concerns(self, event: Event) -> Iterable[str]:
        """Returns the path of the event's own object."""
        return (event.record.path,)

    async def reconcile(self, path: str) -> float | None:
        """Writes or deletes the slices of an Endpoints object. Raises ApiError if a write was refused; the caller retries."""
        existing = self.slices.of(path)
        endpoints = self._store.get("endpoints", path)
        service = self._store.get("services", path)
        wanted: tuple[EndpointSlice, ...] = ()
        if endpoints is not None and service is not None and not self._has_selector(service.document()):
            decoded = self._service.decode(service.body)
            if endpoints.labels.get(_OURS) is None:
                wanted = self._mirror(self._endpoints.decode(endpoints.body), decoded)
        if not wanted:
            for found in existing:
                await self._writer.delete(path.partition("/")[0], found["metadata"]["name"])
            return None
        assert endpoints is not None
        owner = endpoints.document()
        desired: dict[Group, list[Document]] = {}
        for made in wanted:
            contents = _document(made)
            desired.setdefault(group_of(contents), []).extend(contents["endpoints"])
        plan = plan_slices(existing, desired, ())
        await self._writer.write(owner, "Endpoints", existing, plan, owner["metadata"].get("labels") or {})
        return None

    def _has_selector(self, service: Document) -> bool:
        return bool(service["spec"].get("selector"))


def _document(made: EndpointSlice) -> Document:
    endpoints = []
    for endpoint in made.endpoints or ():
        shown: Document = {"addresses": list(endpoint.addresses or ())}
        conditions = endpoint.conditions
        said = {"ready": conditions.ready} if conditions is not None and conditions.ready is not None else {}
        shown["conditions"] = said
        if endpoint.node_name:
            shown["nodeName"] = endpoint.node_name
        endpoints.append(shown)
    ports = [
        {"name": port.name or "", "protocol": port.protocol or "TCP", "port": port.port} for port in made.ports or ()
    ]
    return {"addressType": made.address_type, "endpoints": endpoints, "ports": ports or None}
