"""The `kubernetes` Service, its Endpoints and its EndpointSlice: how pods find the API servers.

The Service has the first address of the primary range and comes back with it when deleted. Every server on a store writes
that it lives, which goes by itself unless said again (`living`); the Endpoints hold those that are left, kube-apiservers on the
same etcd among them. All servers write the same, whatever their own address is, so that none undoes what another wrote. With it a
server says what has to be the same everywhere, and the others log what is not.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from nodeagent.apiserver.controllers.controller_loop import Controller, Keys
from nodeagent.apiserver.living import (
    MASTER_LEASES,
    SERVERS,
    Advertised,
    endpoint_port,
    kube_apiservers,
    own_servers,
)
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.write_rules import DeleteOptions
from nodeagent.apiserver.storage.records import Change, Event, Precondition, StorageFailed, StorageFull, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog, Resource
from nodeagent.kinds.description.status import ApiError

logger = logging.getLogger(__name__)
NAME: Final = "kubernetes"
NAMESPACE: Final = "default"
KEY: Final = f"{NAMESPACE}/{NAME}"
_OPTIONS_MANAGER: Final = "kube-apiserver"
_RENEW_SECONDS: Final = 4.0
_EXPIRE_SECONDS: Final = 12.0
_LOOK_AGAIN_SECONDS: Final = 1.0
_FAREWELL_SECONDS: Final = 2.0
_PORT: Final = 443
_SERVICE_NAME: Final = "kubernetes.io/service-name"


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
        """The loop that reconciles: on every server, so that no election decides how soon a dead one is out of the way."""
        sources: dict[str, Keys] = {
            "namespaces": lambda event: (KEY,) if event.record.path == NAMESPACE else (),
            "services": _concerns_its_own,
            "endpoints": _concerns_its_own,
            "endpointslices": _concerns_its_slices,
            SERVERS: lambda _: (KEY,),
            MASTER_LEASES: lambda _: (KEY,),
        }
        return Controller("kubernetes-service", self._store, sources, self.reconcile, workers=1)

    async def beat(self) -> None:
        """Says every few seconds that this server lives; takes it back in the end, and out of the Endpoints."""
        await self._give_all_a_term()
        try:
            while True:
                pause = _RENEW_SECONDS
                try:
                    await self._say()
                except (StorageFull, StorageFailed) as error:
                    logger.warning("heartbeat not written error=%s", error)
                    pause = _LOOK_AGAIN_SECONDS
                await asyncio.sleep(pause)
        finally:
            with contextlib.suppress(Precondition, StorageFull, StorageFailed, ApiError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_SECONDS):
                    await self._take_back()
                    await self.reconcile(KEY)

    async def _give_all_a_term(self) -> None:
        """Those who live renew it; who was written down without one, by an earlier version of this program, may be dead."""
        for record in list(self._store.collection(SERVERS).records.values()):
            change = Change(SERVERS, record.path, record.revision, record.body, seconds=_EXPIRE_SECONDS)
            with contextlib.suppress(Precondition, StorageFull, StorageFailed):
                await self._store.commit([change])

    async def _say(self) -> None:
        lives = Change(
            SERVERS,
            self._advertised.path,
            None,
            draft(self._advertised.lease(self._options)),
            seconds=_EXPIRE_SECONDS,
        )
        await self._store.commit([lives])
        if self._store.remote and self._advertised.published:
            # By itself: of two objects in a transaction none would merely be prolonged.
            body = self._advertised.master_lease()
            await self._store.commit(
                [Change(MASTER_LEASES, self._advertised.address, None, body, seconds=_EXPIRE_SECONDS)]
            )

    async def _take_back(self) -> None:
        """The lease of an address stays as long as another server has it, at another port."""
        own = self._advertised
        if self._store.get(SERVERS, own.path) is not None:
            await self._store.commit([Change(SERVERS, own.path, None, None)])
        shared = any(server.address == own.address for server in own_servers(self._store))
        if not shared and self._store.get(MASTER_LEASES, own.address) is not None:
            await self._store.commit([Change(MASTER_LEASES, own.address, None, None)])

    async def reconcile(self, _: str) -> float | None:
        """Creates or corrects the Service, the Endpoints and the slice, and first of all their namespace."""
        self._compare_options()
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
        if living is not None:
            await self._bring(self._endpoints, self._endpoints_object(living), "subsets")
            await self._bring_slices(self._slice_objects(living))
        return None

    async def _create(self, resource: Resource, namespace: str, wanted: Document, options: WriteOptions) -> None:
        try:
            await self._registry.create(resource, namespace, wanted, options)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _compare_options(self) -> None:
        """Where a server that lives was started with others, one of the two will refuse what the other gives."""
        different = frozenset(
            (record.path, option, str(value))
            for record in self._store.collection(SERVERS).records.values()
            for option, value in (record.document().get("options") or {}).items()
            if value != self._options.get(option, value)
        )
        for path, option, value in sorted(different - self._different):
            logger.warning(
                "another server was started with another option server=%s option=%s there=%s here=%s",
                *(path, option, value or "none", self._options[option] or "none"),
            )
        self._different = different

    def _living(self) -> list[Advertised] | None:
        """All servers, sorted; None when nobody at all says that he lives, and what was known is to stay.

        That may be a fault, and an agent that reaches the API server through this Service finds it again by what it has.
        """
        # A lease names no port: kube-apiserver takes it that all servers have its own.
        beside = {Advertised(address, self._advertised.port) for address in kube_apiservers(self._store)}
        living = own_servers(self._store) | beside
        return sorted(living, key=lambda server: (server.address, server.port)) or None

    async def _bring(self, resource: Resource, wanted: Document, part: str) -> None:
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

    async def _bring_slices(self, wanted: list[Document]) -> None:
        """These, and of the further ones that were once needed none."""
        for one in wanted:
            await self._bring(self._slices, one, "endpoints")
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

    def _endpoints_object(self, living: list[Advertised]) -> Document:
        published = [server for server in living if server.published]
        subsets = [
            {
                "addresses": [{"ip": server.address} for server in published if server.port == number],
                "ports": [endpoint_port(number)],
            }
            for number in sorted({server.port for server in published})
        ]
        meta = {"name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
        return {"metadata": meta, **({"subsets": subsets} if subsets else {})}

    def _slice_objects(self, living: list[Advertised]) -> list[Document]:
        """One, named as the Service, unless servers differ in their port: the lowest is in that one, each other in one more."""
        version = ip_address(self._address).version
        fitting = [server for server in living if server.published and ip_address(server.address).version == version]
        ports = sorted({server.port for server in fitting}) or [min(server.port for server in living)]
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


def _concerns_its_own(event: Event) -> Iterable[str]:
    return (KEY,) if event.record.path == KEY else ()


def _concerns_its_slices(event: Event) -> Iterable[str]:
    of = event.record.labels.get(_SERVICE_NAME) if event.record.namespace == NAMESPACE else None
    return (KEY,) if of == NAME or event.record.path == KEY else ()
