"""The present objects of the cluster, as the translation sees them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR


class Snapshot(Protocol):
    """A read-only view of the latest objects. Reading the same key twice without a change gives the same objects."""

    @property
    def services(self) -> Mapping[ObjectKey, Service]: ...

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        """Returns the slices that carry the service's name as label, sorted by slice name."""
        ...

    @property
    def node(self) -> Node | None: ...

    @property
    def service_cidrs(self) -> Collection[ServiceCIDR]: ...


@dataclass(frozen=True, slots=True)
class FixedSnapshot:
    """Objects that do not change, without a Node and ServiceCIDRs."""

    services: Mapping[ObjectKey, Service]
    slices: Mapping[ObjectKey, Collection[EndpointSlice]]
    node: Node | None = None
    service_cidrs: tuple[ServiceCIDR, ...] = ()

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        return self.slices.get(service, ())
