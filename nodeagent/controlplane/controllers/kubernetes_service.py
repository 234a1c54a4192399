"""The `kubernetes` Service, its Endpoints and its EndpointSlice: how pods find the API servers.

The Service has the first address of the primary range and comes back with it when deleted. Every server on a store writes
that it lives (as kube-apiserver does with its master leases), which goes by itself unless said again; the Endpoints hold those
that are left.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.machinery.acceptance import WriteOptions
from nodeagent.controlplane.machinery.registry import Registry
from nodeagent.controlplane.machinery.resources import Catalog, Resource
from nodeagent.controlplane.status import ApiError
from nodeagent.controlplane.storage.records import Change, Event, Precondition, StorageFailed, StorageFull, draft
from nodeagent.controlplane.storage.store import Store

logger = logging.getLogger(__name__)
SERVERS: Final = "apiservers"
NAME: Final = "kubernetes"
NAMESPACE: Final = "default"
KEY: Final = f"{NAMESPACE}/{NAME}"
_OPTIONS_MANAGER: Final = "kube-apiserver"
_RENEW_SECONDS: Final = 5.0
_EXPIRE_SECONDS: Final = 15.0
_LOOK_AGAIN_SECONDS: Final = 1.0
_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Advertised:
    """Where this server can be reached. A loopback address means nothing to others and is not published."""

    address: str
    port: int

    @property
    def published(self) -> bool:
        """Others can use it."""
        return not ip_address(self.address).is_loopback


class KubernetesService:
    """Reconciles the three objects; `beat` keeps this server among the living."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        catalog: Catalog,
        *,
        address: str,
        advertised: Advertised,
    ) -> None:
        self._store = store
        self._registry = registry
        self._namespaces = catalog.named("namespaces")
        self._services = catalog.named("services")
        self._endpoints = catalog.named("endpoints")
        self._slices = catalog.named("endpointslices", "discovery.k8s.io")
        self._address = address
        self._advertised = advertised

    def concerns(self, event: Event) -> Iterable[str]:
        """Of services, endpoints and slices only its own; any change of the living servers."""
        return (KEY,) if event.record.path == KEY else ()

    def concerns_servers(self, _: Event) -> Iterable[str]:
        """The set of living servers may have changed."""
        return (KEY,)

    async def beat(self) -> None:
        """Says every few seconds that this server lives; takes it back in the end."""
        path = f"{self._advertised.address}:{self._advertised.port}"
        await self._give_all_a_term()
        try:
            while True:
                try:
                    await self._say(path)
                except (StorageFull, StorageFailed) as error:
                    logger.warning("heartbeat not written error=%s", error)
                await asyncio.sleep(_RENEW_SECONDS)
        finally:
            if self._store.get(SERVERS, path) is not None:
                await self._store.commit([Change(SERVERS, path, None, None)])

    async def _give_all_a_term(self) -> None:
        """Those who live renew it; who was written down without one, by an earlier version of this program, may be dead."""
        for record in list(self._store.collection(SERVERS).records.values()):
            change = Change(SERVERS, record.path, record.revision, record.body, seconds=_EXPIRE_SECONDS)
            with contextlib.suppress(Precondition, StorageFull, StorageFailed):
                await self._store.commit([change])

    async def _say(self, path: str) -> None:
        body: Document = {
            "metadata": {"name": path, "resourceVersion": "0"},
            "address": self._advertised.address,
            "port": self._advertised.port,
        }
        await self._store.commit([Change(SERVERS, path, None, draft(body), seconds=_EXPIRE_SECONDS)])

    def concerns_namespace(self, event: Event) -> Iterable[str]:
        """What became of the namespace they live in."""
        return (KEY,) if event.record.path == NAMESPACE else ()

    async def reconcile(self, _: str) -> float | None:
        """Creates or corrects the Service, the Endpoints and the slice, and first of all their namespace."""
        options = WriteOptions(manager=_OPTIONS_MANAGER)
        namespace = self._store.get("namespaces", NAMESPACE)
        if namespace is None:
            await self._create(self._namespaces, "", {"metadata": {"name": NAMESPACE}}, options)
        elif namespace.document()["metadata"].get("deletionTimestamp"):
            # Nothing can be made in it any more; it comes back once it is gone.
            return _LOOK_AGAIN_SECONDS
        if self._store.get("services", KEY) is None:
            await self._create(self._services, NAMESPACE, self._service(), options)
        living = self._living()
        await self._bring(self._endpoints, self._endpoints_object(living), "subsets")
        await self._bring(self._slices, self._slice_object(living), "endpoints")
        return None

    async def _create(self, resource: Resource, namespace: str, wanted: Document, options: WriteOptions) -> None:
        try:
            await self._registry.create(resource, namespace, wanted, options)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _living(self) -> list[tuple[str, int]]:
        found = [record.document() for record in self._store.collection(SERVERS).records.values()]
        living = {(str(server["address"]), int(server["port"])) for server in found}
        return sorted(pair for pair in living if Advertised(*pair).published)

    async def _bring(self, resource: Resource, wanted: Document, part: str) -> None:
        record = self._store.get(resource.stored_in, KEY)
        options = WriteOptions(manager=_OPTIONS_MANAGER)
        if record is None:
            await self._registry.create(resource, NAMESPACE, wanted, options)
            return
        live = record.document()
        if live.get(part) == wanted.get(part) and live.get("ports") == wanted.get("ports"):
            return
        wanted["metadata"] = {**live["metadata"], "labels": wanted["metadata"]["labels"]}
        await self._registry.update(resource, NAMESPACE, NAME, wanted, options)

    def _service(self) -> Document:
        return {
            "metadata": {"name": NAME, "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": self._address,
                "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": "None",
                "ports": [
                    {"name": "https", "protocol": "TCP", "port": _PORT, "targetPort": self._advertised.port},
                ],
            },
        }

    def _endpoints_object(self, living: list[tuple[str, int]]) -> Document:
        subsets = [
            {
                "addresses": [{"ip": address} for address, at in living if at == port],
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            }
            for port in sorted({port for _, port in living})
        ]
        meta = {"name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
        return {"metadata": meta, **({"subsets": subsets} if subsets else {})}

    def _slice_object(self, living: list[tuple[str, int]]) -> Document:
        version = ip_address(self._address).version
        port = self._advertised.port
        return {
            "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": f"IPv{version}",
            "endpoints": [
                {"addresses": [address], "conditions": {"ready": True}}
                for address, at in living
                if at == port and ip_address(address).version == version
            ],
            "ports": [{"name": "https", "protocol": "TCP", "port": port}],
        }
