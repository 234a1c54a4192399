"""Follows an API server: one informer for each kind the agent reads, into one store.

Decided here: which resources, with which selectors, and whether endpoints come from EndpointSlices or from Endpoints
(never from both at a time). Selectors are those of kube-proxy: the server must not send headless Services and their slices
(kubernetes/kubernetes #81060: a terabyte a day), nor those that another proxy serves.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable
from typing import Generic, Literal, Protocol, TypeVar

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    LABEL_HEADLESS,
    LABEL_PROXY_NAME,
    Endpoints,
    EndpointSlice,
    Namespace,
    Node,
    Pod,
    Service,
    ServiceCIDR,
    StoredObject,
    key_of,
)
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.client.api_errors import ForbiddenError, KubeError, NotServedError, RejectedError
from nodeagent.proxy.source.decode import O
from nodeagent.proxy.source.following import Following
from nodeagent.proxy.source.informer import CollectionClient, FullList, Informer, Resource, Sink
from nodeagent.proxy.source.mirror import mirror_endpoints
from nodeagent.proxy.source.missing_node import MissingNode
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_store import ClusterStore, Listing
from nodeagent.proxy.source.pace import AbsenceDelays, Pace, RetryDelays
from nodeagent.proxy.source.pod_addresses import ENDED, PodAddresses
from nodeagent.proxy.source.pulse import Prober, Pulse
from nodeagent.proxy.source.recovery import Recovery

logger = logging.getLogger(__name__)

EndpointsApi = Literal["auto", "endpointslices", "endpoints"]
DISCOVERY_V1 = "/apis/discovery.k8s.io/v1"
ABSENCES = 3
"""This many answers in a row that discovery.k8s.io/v1 does not exist, before the server is treated as an old one: a server that
starts, or a proxy in front of it, gives this answer too."""

S = TypeVar("S", bound=StoredObject)


class ServerClient(CollectionClient, Prober, Protocol):
    """The parts of `ApiClient` that are needed to follow a server."""


class ApiServerSource:
    """Keeps `store` equal to the objects of the API server.

    node_name: the Node object that is followed. endpoints_api: ``auto`` reads EndpointSlices unless the server has
    no discovery.k8s.io/v1. for_names: request all Services and slices, as a store for cluster DNS needs them.
    namespaces, pods: receive the present ones; None: they are not followed. pace: None for real time and real chance.
    """

    def __init__(
        self,
        client: ServerClient,
        store: ClusterStore,
        *,
        node_name: str,
        endpoints_api: EndpointsApi = "auto",
        for_names: bool = False,
        namespaces: NamespaceNames | None = None,
        pods: PodAddresses | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._node_name = node_name
        self._endpoints_api = endpoints_api
        self._for_names = for_names
        self._namespaces = namespaces
        self._pods = pods
        self._pace = pace or Pace(random=random.random, sleep=asyncio.sleep)
        self._recovery = Recovery()
        self._pulse = Pulse(self._pace)
        self._following: dict[str, Following] = {}

    @property
    def following(self) -> Collection[Following]:
        """The progress of each resource that is followed."""
        return self._following.values()

    async def run(self) -> None:
        """Ends only by cancellation."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_services(), name="informer services")
            tasks.create_task(self._follow_endpoints(), name="informer endpoints")
            tasks.create_task(self._follow_node(), name="informer node")
            tasks.create_task(self._follow_service_cidrs(), name="informer servicecidrs")
            if self._namespaces is not None:
                resource = Resource(Namespace, "/api/v1/namespaces", optional=True)
                informer = self._informer(resource, self._namespaces)
                tasks.create_task(informer.run(), name="informer namespaces")
            if self._pods is not None:
                tasks.create_task(self._follow_pods(self._pods), name="informer pods")
            tasks.create_task(self._pulse.run(self._client), name="pulse of the server")

    def _informer(self, resource: Resource[O], sink: Sink[O]) -> Informer[O]:
        informer = Informer(self._client, resource, sink, self._pace, self._recovery, self._pulse)
        self._following[resource.name] = informer.following
        return informer

    async def _follow_services(self) -> None:
        proxied = (("labelSelector", f"!{LABEL_PROXY_NAME}"), ("fieldSelector", "spec.clusterIP!=None"))
        resource = Resource(Service, "/api/v1/services", () if self._for_names else proxied)
        await self._informer(resource, StoreSink(self._store, Service)).run()

    async def _follow_endpoints(self) -> None:
        selectors = () if self._for_names else (("labelSelector", f"!{LABEL_HEADLESS}"),)
        if not await self._serves_slices():
            await self._follow_mirrored(Resource(Endpoints, "/api/v1/endpoints", selectors))
        slices = Resource(EndpointSlice, f"{DISCOVERY_V1}/endpointslices", selectors)
        await self._informer(slices, StoreSink(self._store, EndpointSlice)).run()

    async def _follow_mirrored(self, endpoints: Resource[Endpoints]) -> None:
        """Follows Endpoints until the server has EndpointSlices."""
        sink = MirrorSink(self._store)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._informer(endpoints, sink).run(), name="informer of Endpoints")
            await self._wait_for_slices()
            following.cancel()
        sink.report(())

    async def _follow_node(self) -> None:
        resource = Resource(Node, "/api/v1/nodes", (("fieldSelector", f"metadata.name={self._node_name}"),))
        sink = StoreSink(self._store, Node, lambda node: node.metadata.name == self._node_name)
        missing = MissingNode(self._client, self._store, self._node_name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer(resource, sink).run(), name="informer of the Node")
            tasks.create_task(missing.run(), name="missing Node")

    async def _follow_service_cidrs(self) -> None:
        resource = Resource(ServiceCIDR, "/apis/networking.k8s.io/v1/servicecidrs", optional=True)
        await self._informer(resource, StoreSink(self._store, ServiceCIDR)).run()

    async def _follow_pods(self, pods: PodAddresses) -> None:
        selector = [f"status.phase!={phase}" for phase in sorted(ENDED)]
        if pods.node_name is not None:
            selector.append(f"spec.nodeName={pods.node_name}")
        resource = Resource(Pod, "/api/v1/pods", (("fieldSelector", ",".join(selector)),), optional=True)
        await self._informer(resource, pods).run()

    async def _serves_slices(self) -> bool:
        """Returns whether to read EndpointSlices; asks the server until it answers."""
        if self._endpoints_api != "auto":
            return self._endpoints_api == "endpointslices"
        retries = RetryDelays(self._pace)
        absences = 0
        while absences < ABSENCES:
            try:
                await self._client.get(DISCOVERY_V1)
            except NotServedError:
                absences += 1
                await self._pace.sleep(retries.next_seconds())
            except ForbiddenError:
                return True
            except RejectedError as error:
                if error.of_api:
                    return True
                await self._pace.sleep(retries.next_seconds())
            except KubeError as error:
                logger.debug("discovery failed error=%s", error)
                await self._recovery.wait(self._pace.sleep(retries.next_seconds()))
            else:
                return True
        logger.warning("no discovery.k8s.io/v1 on the server, reading Endpoints instead of EndpointSlices")
        return False

    async def _wait_for_slices(self) -> None:
        """Waits until the server has EndpointSlices; for ever if the configuration names the API."""
        if self._endpoints_api != "auto":
            await asyncio.Event().wait()
        looks = AbsenceDelays(self._pace)
        while True:
            await self._pace.sleep(looks.next_seconds())
            try:
                await self._client.get(DISCOVERY_V1)
            except KubeError as error:
                logger.debug("no EndpointSlices yet: %s", error)
            else:
                logger.info("the server has discovery.k8s.io/v1 now: reading EndpointSlices")
                return


class StoreSink(Generic[S]):
    """Puts one kind of object into the store. wanted: selects objects here if the server refused the selector."""

    def __init__(self, store: ClusterStore, kind: type[S], wanted: Callable[[S], bool] = lambda _: True) -> None:
        self._store = store
        self._kind = kind
        self._wanted = wanted

    def listing(self) -> "FilteredList[S]":
        return FilteredList(self._store.listing(self._kind), self._wanted)

    def put(self, obj: S) -> None:
        if self._wanted(obj):
            self._store.put(obj)

    def remove(self, key: ObjectKey) -> None:
        self._store.remove(self._kind, key)

    def unavailable(self) -> None:
        self._store.unavailable(self._kind)

    def report(self, problems: Iterable[Problem]) -> None:
        self._store.report(f"api {self._kind.__name__}", problems)


class FilteredList(Generic[S]):
    """A listing of the store that takes the wanted objects only."""

    def __init__(self, listing: Listing[S], wanted: Callable[[S], bool]) -> None:
        self._listing = listing
        self._wanted = wanted

    def add(self, objects: Iterable[S]) -> None:
        self._listing.add(filter(self._wanted, objects))

    def discard(self, key: ObjectKey) -> None:
        self._listing.discard(key)

    def commit(self) -> None:
        self._listing.commit()


class MirrorSink:
    """Puts Endpoints into the store, converted to EndpointSlices.

    Converts all of them, also those that opt out of mirroring: the opt-out is meant for a controller that runs beside the one
    that writes EndpointSlices, and here no such controller runs.
    """

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self._slice_keys: dict[ObjectKey, frozenset[ObjectKey]] = {}

    def listing(self) -> FullList[Endpoints]:
        return _MirroredList(self, self._store)

    def put(self, obj: Endpoints) -> None:
        key = key_of(obj)
        slices = mirror_endpoints(obj, None, honour_opt_out=False)
        keys = frozenset(key_of(made) for made in slices)
        for made in slices:
            self._store.put(made)
        for vanished in self._slice_keys.get(key, frozenset()) - keys:
            self._store.remove(EndpointSlice, vanished)
        self._slice_keys[key] = keys

    def remove(self, key: ObjectKey) -> None:
        for vanished in self._slice_keys.pop(key, frozenset()):
            self._store.remove(EndpointSlice, vanished)

    def unavailable(self) -> None:
        """Does nothing: endpoints are always waited for."""

    def report(self, problems: Iterable[Problem]) -> None:
        self._store.report("api Endpoints", problems)

    def listed(self, slice_keys: dict[ObjectKey, frozenset[ObjectKey]]) -> None:
        """Called when a full list has been committed. slice_keys: the slices that each Endpoints was converted to."""
        self._slice_keys = slice_keys


class _MirroredList:
    def __init__(self, sink: MirrorSink, store: ClusterStore) -> None:
        self._sink = sink
        self._listing = store.listing(EndpointSlice)
        self._slice_keys: dict[ObjectKey, frozenset[ObjectKey]] = {}

    def add(self, objects: Iterable[Endpoints]) -> None:
        for obj in objects:
            self.discard(key_of(obj))
            slices = mirror_endpoints(obj, None, honour_opt_out=False)
            self._listing.add(slices)
            self._slice_keys[key_of(obj)] = frozenset(key_of(made) for made in slices)

    def discard(self, key: ObjectKey) -> None:
        for vanished in self._slice_keys.pop(key, frozenset()):
            self._listing.discard(vanished)

    def commit(self) -> None:
        self._listing.commit()
        self._sink.listed(self._slice_keys)
