"""Adds the service ranges of the configuration to those of the cluster."""

from collections.abc import Sequence

from nodeagent.model.objects import Node, ObjectMeta, ServiceCIDR, ServiceCIDRSpec
from nodeagent.proxy.source.object_store import ClusterStore


class WithConfiguredCidrs:
    """The store, plus the service CIDRs of the configuration as one more ServiceCIDR object."""

    def __init__(self, store: ClusterStore, cidrs: Sequence[str]) -> None:
        self._store = store
        configured = ServiceCIDR(ObjectMeta(name="configuration"), ServiceCIDRSpec(tuple(cidrs)))
        self._configured = (configured,) if cidrs else ()
        self.services = store.services
        self.slices_of = store.slices_of

    @property
    def node(self) -> Node | None:
        return self._store.node

    @property
    def service_cidrs(self) -> tuple[ServiceCIDR, ...]:
        return (*self._store.service_cidrs, *self._configured)
