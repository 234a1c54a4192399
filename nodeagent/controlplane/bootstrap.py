"""What a store holds from the first start on: the system namespaces and the default ServiceCIDR."""

from collections.abc import Callable
from typing import Final

from nodeagent.controlplane.addresses.ranges import AddressRange
from nodeagent.controlplane.addresses.service_ranges import DEFAULT, RANGES
from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.machinery.managed import Manager, track_update
from nodeagent.controlplane.machinery.registry import Registry, WriteOptions
from nodeagent.controlplane.machinery.resources import Catalog
from nodeagent.controlplane.machinery.schema.decoding import empty, normalise
from nodeagent.controlplane.machinery.schema.kinds import structs
from nodeagent.controlplane.machinery.write_rules import STATUS
from nodeagent.controlplane.moments import rfc3339
from nodeagent.controlplane.status import ApiError
from nodeagent.controlplane.storage.records import draft
from nodeagent.controlplane.storage.store import Store

SYSTEM_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_TIME: Final = "2000-01-01T00:00:00Z"
_MANAGER: Final = "kube-apiserver"
_CIDR_MANAGER: Final = "kubernetes-service-cidr-controller"


async def bootstrap(
    store: Store, registry: Registry, catalog: Catalog, ranges: tuple[AddressRange, ...], clock: Callable[[], float]
) -> None:
    """Creates what is missing. Raises ApiError; another server doing the same at the same time is fine."""
    options = WriteOptions(manager=_MANAGER)
    for name in SYSTEM_NAMESPACES:
        if store.get("namespaces", name) is None:
            try:
                await registry.create(catalog.named("namespaces"), "", {"metadata": {"name": name}}, options)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
    await create_default_range(store, registry, catalog, ranges, clock)


async def create_default_range(
    store: Store, registry: Registry, catalog: Catalog, ranges: tuple[AddressRange, ...], clock: Callable[[], float]
) -> None:
    """The ServiceCIDR of the ranges the server was started with, if it is missing. Raises ApiError."""
    options = WriteOptions(manager=_MANAGER)
    resource = catalog.named(RANGES, "networking.k8s.io")
    wanted = [str(found.network) for found in ranges]
    if store.get(resource.stored_in, DEFAULT) is None:
        document = {"metadata": {"name": DEFAULT}, "spec": {"cidrs": wanted}}
        try:
            await registry.create(resource, "", document, options)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        now = rfc3339(int(clock()))
        condition = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": now,
            "message": "Kubernetes default Service CIDR is ready",
        }
        status: Document = {"status": {"conditions": [condition]}}
        await registry.apply(resource, "", DEFAULT, status, WriteOptions(manager=_CIDR_MANAGER, force=True), STATUS)


def stored_ranges(store: Store) -> list[str]:
    """The CIDRs of the default ServiceCIDR, empty on a new store."""
    record = store.get(RANGES, DEFAULT)
    return list(record.document()["spec"].get("cidrs") or []) if record is not None else []


class AddressObjects:
    """Builds the IPAddress objects of allocated addresses, by filling in a template: every new service needs one."""

    def __init__(self, uid: Callable[[], str], clock: Callable[[], float]) -> None:
        self._uid = uid
        self._clock = clock
        self._templates = {family: _address_template(family) for family in ("IPv4", "IPv6")}

    def describe(self, address: str, namespace: str, name: str) -> bytes:
        """The object that says a service holds `address`, as a draft. Names of services need no escaping in JSON."""
        now = rfc3339(int(self._clock()))
        return self._templates["IPv6" if ":" in address else "IPv4"] % (
            address.encode(),
            self._uid().encode(),
            now.encode(),
            now.encode(),
            namespace.encode(),
            name.encode(),
        )


def _address_template(family: str) -> bytes:
    """An IPAddress with %b for name, uid, creation time, the owner's time, and the service's namespace and name."""
    labels = {
        "ipaddress.kubernetes.io/ip-family": family,
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    parent = {"resource": "services", "namespace": "%b", "name": "%b"}
    document: Document = {"metadata": {"labels": labels}, "spec": {"parentRef": parent}}
    struct = structs()["IPAddress"]
    track_update(struct, empty(struct), document, Manager("Update", _MANAGER, "networking.k8s.io/v1"), "%b")
    document["metadata"] |= {"name": "%b", "uid": "%b", "resourceVersion": "0"}
    # Times are checked while the document is put in order, so their placeholders come afterwards.
    document["metadata"]["creationTimestamp"] = document["metadata"]["managedFields"][0]["time"] = _TIME
    return draft(normalise(struct, document)).replace(_TIME.encode(), b"%b")
