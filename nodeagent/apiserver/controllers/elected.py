"""The controllers that run on one server only; they are built again each time their server is elected."""

import asyncio
from collections.abc import Awaitable, Callable

from nodeagent.apiserver.addresses.allocation import ADDRESSES
from nodeagent.apiserver.addresses.ranges import Network
from nodeagent.apiserver.addresses.service_ranges import DEFAULT, RANGES
from nodeagent.apiserver.controllers.controller_loop import Controller, own_path
from nodeagent.apiserver.controllers.endpoints_controller import ServiceEndpoints
from nodeagent.apiserver.controllers.event_expiry import EventExpiry
from nodeagent.apiserver.controllers.load_balancers import LoadBalancerAddresses
from nodeagent.apiserver.controllers.mirroring import Mirror, Mirroring
from nodeagent.apiserver.controllers.namespace_contents import NamespaceContents
from nodeagent.apiserver.controllers.namespace_deletion import NamespaceDeletion
from nodeagent.apiserver.controllers.nodes import NodeHeartbeat
from nodeagent.apiserver.controllers.pods import PodRemoval
from nodeagent.apiserver.controllers.repair import Repair
from nodeagent.apiserver.controllers.service_cidrs import ServiceCidrs
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.resources import Catalog


class ElectedControllers:
    """Runs the controllers. `run` may be called again: it builds new ones, since old ones have missed events."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        catalog: Catalog,
        *,
        mirror: Mirror,
        balancers: tuple[Network, ...],
        default_range: Callable[[], Awaitable[None]],
        repair: Repair,
        authority: str | None,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._registry = registry
        self._catalog = catalog
        self._mirror = mirror
        self._balancers = balancers
        self._default_range = default_range
        self._repair = repair
        self._authority = authority
        self._clock = clock

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            for controller in self._build():
                group.create_task(controller.run(), name=f"controller {controller.name}")
            group.create_task(self._repair.run(), name="repair")

    def _build(self) -> list[Controller]:
        store, registry, catalog = self._store, self._registry, self._catalog
        endpoints = ServiceEndpoints(store, registry, catalog)
        mirroring = Mirroring(store, registry, catalog, self._mirror)
        namespaces = NamespaceDeletion(store, registry, catalog)
        contents = NamespaceContents(store, registry, catalog, self._authority)
        pods = PodRemoval(store, registry, catalog, self._clock)
        ranges = ServiceCidrs(store, registry, catalog, self._default_range, self._clock)
        nodes = NodeHeartbeat(store, registry, catalog, self._clock)
        controllers = [
            Controller(
                "endpoints",
                store,
                {
                    "services": endpoints.workloads.service_event,
                    "pods": endpoints.workloads.pod_event,
                    "endpointslices": endpoints.slices.event,
                    "endpoints": endpoints.endpoints_event,
                    "nodes": endpoints.node_event,
                },
                endpoints.reconcile,
            ),
            Controller(
                "mirroring",
                store,
                {"endpoints": mirroring.concerns, "services": own_path, "endpointslices": mirroring.slices.event},
                mirroring.reconcile,
            ),
            Controller("namespaces", store, {"namespaces": namespaces.concerns}, namespaces.reconcile),
            Controller(
                "namespace-contents",
                store,
                {
                    "namespaces": own_path,
                    "serviceaccounts": contents.concerns_account,
                    "configmaps": contents.concerns_authority,
                },
                contents.reconcile,
            ),
            Controller(
                "service-cidrs",
                store,
                {RANGES: ranges.concerns, ADDRESSES: ranges.concerns_address},
                ranges.reconcile,
                workers=1,
                always=(DEFAULT,),
            ),
            Controller("addresses", store, {ADDRESSES: self._repair.concerns}, self._repair.reconcile, workers=1),
            Controller("pods", store, {"pods": pods.concerns}, pods.reconcile),
            Controller("events", store, {"events": own_path}, EventExpiry(store, self._clock).reconcile),
            Controller("nodes", store, {"nodes": own_path, "leases": nodes.concerns_lease}, nodes.reconcile),
        ]
        if self._balancers:
            balancers = LoadBalancerAddresses(store, registry, catalog, self._balancers)
            sources = {"services": balancers.concerns}
            controllers.append(Controller("load-balancers", store, sources, balancers.reconcile, workers=1))
        return controllers
