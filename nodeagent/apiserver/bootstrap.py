"""Creates what every store contains: the system namespaces and the default ServiceCIDR."""

from collections.abc import Callable
from typing import Final

from nodeagent.apiserver.addresses.ranges import AddressRange
from nodeagent.apiserver.addresses.service_ranges import DEFAULT, RANGES
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.description.resources import STATUS, Catalog
from nodeagent.kinds.description.status import ignoring
from nodeagent.kinds.namespace import SYSTEM_NAMESPACES

_MANAGER: Final = "kube-apiserver"
_CIDR_MANAGER: Final = "kubernetes-service-cidr-controller"


async def bootstrap(
    store: Store, registry: Registry, catalog: Catalog, ranges: tuple[AddressRange, ...], clock: Callable[[], float]
) -> None:
    """Creates what is missing. Raises ApiError. Several servers may do this at the same time."""
    options = WriteOptions(manager=_MANAGER)
    for name in SYSTEM_NAMESPACES:
        if store.get("namespaces", name) is None:
            with ignoring("AlreadyExists"):
                await registry.create(catalog.named("namespaces"), "", {"metadata": {"name": name}}, options)
    await create_default_range(store, registry, catalog, ranges, clock)


async def create_default_range(
    store: Store, registry: Registry, catalog: Catalog, ranges: tuple[AddressRange, ...], clock: Callable[[], float]
) -> None:
    """Creates the ServiceCIDR of the ranges the server was started with, if it is missing. Raises ApiError."""
    options = WriteOptions(manager=_MANAGER)
    resource = catalog.named(RANGES, "networking.k8s.io")
    wanted = [str(found.network) for found in ranges]
    if store.get(resource.stored_in, DEFAULT) is None:
        document = {"metadata": {"name": DEFAULT}, "spec": {"cidrs": wanted}}
        with ignoring("AlreadyExists"):
            await registry.create(resource, "", document, options)
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
    """Returns the CIDRs of the default ServiceCIDR; empty for a new store."""
    record = store.get(RANGES, DEFAULT)
    return list(record.document()["spec"].get("cidrs") or []) if record is not None else []
