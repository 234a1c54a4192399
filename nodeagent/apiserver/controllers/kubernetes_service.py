"""The `kubernetes` Service, its Endpoints and its EndpointSlice: how pods find the API servers.

The Service has the first address of the primary range and gets it again after a deletion. Every server on a store keeps a
record that expires unless it is renewed (`live_servers`); the Endpoints list the live servers, including kube-apiservers on the same
etcd. All servers write the same objects, whatever their own address is, so that none undoes what another wrote. The record also
has the options that must be the same everywhere; the others log differences.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from nodeagent.apiserver import live_servers
from nodeagent.apiserver.controllers.controller_loop import Controller, Keys
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.write_rules import DeleteOptions
from nodeagent.apiserver.storage.records import Change, Event, Precondition, StorageFailed, StorageFull, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog, Resource
from nodeagent.kinds.description.status import ApiError, ignoring

logger = logging.getLogger(__name__)
NAME: Final = "kubernetes"
NAMESPACE: Final = "default"
KEY: Final = f"{NAMESPACE}/{NAME}"
_OPTIONS_MANAGER: Final = "kube-apiserver"
_RENEW_SECONDS: Final = 4.0
_EXPIRE_SECONDS: Final = 12.0
_RETRY_SECONDS: Final = 1.0
_UNREGISTER_SECONDS: Final = 2.0
_PORT: Final = 443
_SERVICE_NAME: Final = "kubernetes.io/service-name"


class KubernetesService:
    """Reconciles the three objects; `keep_registered` keeps this server registered as live."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        catalog: Catalog,
        *,
        address: str,
        advertised: live_servers.AdvertisedAddress,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._registry = registry
        self._namespaces = catalog.named("namespaces")
        self._services = catalog.named("services")
        self._endpoints = catalog.named("endpoints")
        self._slices = catalog.named("endpointslices", "discovery.k8s.io")
        self._address = address
        self._advertised = advertised
        self._options = options
        self._different: frozenset[tuple[str, str, str]] = frozenset()

    def controller(self) -> Controller:
        """Returns the loop that reconciles. It runs on every server, so that dead ones are removed without an election."""
        sources: dict[str, Keys] = {
            "namespaces": lambda event: (KEY,) if event.record.path == NAMESPACE else (),
            "services": _own_key,
            "endpoints": _own_key,
            "endpointslices": _slice_key,
            live_servers.SERVERS: lambda _: (KEY,),
            live_servers.MASTER_LEASES: lambda _: (KEY,),
        }
        return Controller("kubernetes-service", self._store, sources, self.reconcile, workers=1)

    async def keep_registered(self) -> None:
        """Renews this server's record every few seconds; at the end removes it, and its address from the Endpoints."""
        await self._make_all_expire()
        try:
            while True:
                pause = _RENEW_SECONDS
                try:
                    await self._register()
                except (StorageFull, StorageFailed) as error:
                    logger.warning("heartbeat not written error=%s", error)
                    pause = _RETRY_SECONDS
                await asyncio.sleep(pause)
        finally:
            with contextlib.suppress(Precondition, StorageFull, StorageFailed, ApiError, TimeoutError):
                async with asyncio.timeout(_UNREGISTER_SECONDS):
                    await self._unregister()
                    await self.reconcile(KEY)

    async def _make_all_expire(self) -> None:
        """Makes all records expire: an earlier version wrote them without expiry, also those of dead servers."""
        for record in list(self._store.collection(live_servers.SERVERS).records.values()):
            change = Change(live_servers.SERVERS, record.path, record.revision, record.body, seconds=_EXPIRE_SECONDS)
            with contextlib.suppress(Precondition, StorageFull, StorageFailed):
                await self._store.commit([change])

    async def _register(self) -> None:
        own_record = Change(
            live_servers.SERVERS,
            self._advertised.path,
            None,
            draft(self._advertised.lease(self._options)),
            seconds=_EXPIRE_SECONDS,
        )
        await self._store.commit([own_record])
        if self._store.remote and self._advertised.published:
            # In a transaction of its own: the storage renews an unchanged object only if it is alone.
            body = self._advertised.master_lease()
            await self._store.commit(
                [Change(live_servers.MASTER_LEASES, self._advertised.address, None, body, seconds=_EXPIRE_SECONDS)]
            )

    async def _unregister(self) -> None:
        """Removes this server's record. The lease of its address stays while another server has the address, at another port."""
        own = self._advertised
        if self._store.get(live_servers.SERVERS, own.path) is not None:
            await self._store.commit([Change(live_servers.SERVERS, own.path, None, None)])
        shared = any(server.address == own.address for server in live_servers.own_servers(self._store))
        if not shared and self._store.get(live_servers.MASTER_LEASES, own.address) is not None:
            await self._store.commit([Change(live_servers.MASTER_LEASES, own.address, None, None)])

    async def reconcile(self, _: str) -> float | None:
        """Creates or corrects the Service, the Endpoints and the slice, and first of all their namespace."""
        self._compare_options()
        options = WriteOptions(manager=_OPTIONS_MANAGER)
        namespace = self._store.get("namespaces", NAMESPACE)
        if namespace is None:
            await self._create(self._namespaces, "", {"metadata": {"name": NAMESPACE}}, options)
        elif namespace.document()["metadata"].get("deletionTimestamp"):
            # Nothing can be created in it any more; it is created again after it was deleted.
            return _RETRY_SECONDS
        if self._store.get("services", KEY) is None:
            await self._create(self._services, NAMESPACE, self._service(), options)
        live = self._live_servers()
        if live is not None:
            await self._write_object(self._endpoints, self._endpoints_object(live), "subsets")
            await self._write_slices(self._slice_objects(live))
        return None

    async def _create(self, resource: Resource, namespace: str, wanted: Document, options: WriteOptions) -> None:
        with ignoring("AlreadyExists"):
            await self._registry.create(resource, namespace, wanted, options)

    def _compare_options(self) -> None:
        """Logs options of live servers that differ: one of the two servers would refuse what the other allocates."""
        different = frozenset(
            (record.path, option, str(value))
            for record in self._store.collection(live_servers.SERVERS).records.values()
            for option, value in (record.document().get("options") or {}).items()
            if value != self._options.get(option, value)
        )
        for path, option, value in sorted(different - self._different):
            logger.warning(
                "another server was started with another option server=%s option=%s there=%s here=%s",
                *(path, option, value or "none", self._options[option] or "none"),
            )
        self._different = different

    def _live_servers(self) -> list[live_servers.AdvertisedAddress] | None:
        """Returns all live servers, sorted, or None if there are no records at all; then the objects stay as they are.

        Missing records may be a fault, and an agent that reaches the API server through this Service could not find it again.
        """
        # A master lease has no port: kube-apiserver assumes that all servers use its own.
        beside = {
            live_servers.AdvertisedAddress(address, self._advertised.port)
            for address in live_servers.kube_apiservers(self._store)
        }
        live = live_servers.own_servers(self._store) | beside
        return sorted(live, key=lambda server: (server.address, server.port)) or None

    async def _write_object(self, resource: Resource, wanted: Document, part: str) -> None:
        name = str(wanted["metadata"]["name"])
        record = self._store.get(resource.stored_in, f"{NAMESPACE}/{name}")
        options = WriteOptions(manager=_OPTIONS_MANAGER)
        if record is None:
            await self._registry.create(resource, NAMESPACE, wanted, options)
            return
        live = record.document()
        if live.get(part) == wanted.get(part) and live.get("ports") == wanted.get("ports"):
            return
        wanted["metadata"] = {**live["metadata"], "labels": wanted["metadata"]["labels"]}
        await self._registry.update(resource, NAMESPACE, name, wanted, options)

    async def _write_slices(self, wanted: list[Document]) -> None:
        """Writes the wanted slices and deletes further ones that are no longer needed."""
        for one in wanted:
            await self._write_object(self._slices, one, "endpoints")
        names = {one["metadata"]["name"] for one in wanted}
        for record in list(self._store.collection(self._slices.stored_in).records.values()):
            ours = record.namespace == NAMESPACE and record.name.startswith(f"{NAME}-port-")
            if ours and record.labels.get(_SERVICE_NAME) == NAME and record.name not in names:
                await self._registry.delete(self._slices, NAMESPACE, record.name, DeleteOptions())

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

    def _endpoints_object(self, live: list[live_servers.AdvertisedAddress]) -> Document:
        published = [server for server in live if server.published]
        subsets = [
            {
                "addresses": [{"ip": server.address} for server in published if server.port == number],
                "ports": [live_servers.endpoint_port(number)],
            }
            for number in sorted({server.port for server in published})
        ]
        meta = {"name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
        return {"metadata": meta, **({"subsets": subsets} if subsets else {})}

    def _slice_objects(self, live: list[live_servers.AdvertisedAddress]) -> list[Document]:
        """Returns one slice with the Service's name for the lowest port, and one more for each other port of a server."""
        version = ip_address(self._address).version
        fitting = [server for server in live if server.published and ip_address(server.address).version == version]
        ports = sorted({server.port for server in fitting}) or [min(server.port for server in live)]
        return [
            {
                "metadata": {"name": NAME if n == 0 else f"{NAME}-port-{port}", "labels": {_SERVICE_NAME: NAME}},
                "addressType": f"IPv{version}",
                "endpoints": [
                    {"addresses": [server.address], "conditions": {"ready": True}}
                    for server in fitting
                    if server.port == port
                ],
                "ports": [{"name": "https", "protocol": "TCP", "port": port}],
            }
            for n, port in enumerate(ports)
        ]


def _own_key(event: Event) -> Iterable[str]:
    return (KEY,) if event.record.path == KEY else ()


def _slice_key(event: Event) -> Iterable[str]:
    of = event.record.labels.get(_SERVICE_NAME) if event.record.namespace == NAMESPACE else None
    return (KEY,) if of == NAME or event.record.path == KEY else ()
