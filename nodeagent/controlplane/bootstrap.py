"""What a store holds from the first start on: the system namespaces and the default ServiceCIDR."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.ranges import AddressRange
from nodeagent.controlplane.registry import Registry, WriteOptions
from nodeagent.controlplane.resources import Catalog
from nodeagent.controlplane.schema.decoding import normalise
from nodeagent.controlplane.schema.kinds import structs
from nodeagent.controlplane.status import ApiError
from nodeagent.controlplane.storage.records import draft
from nodeagent.controlplane.storage.store import Store
from nodeagent.controlplane.write_rules import STATUS

SYSTEM_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_CIDR_NAME: Final = "kubernetes"
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
    resource = catalog.named("servicecidrs", "networking.k8s.io")
    wanted = [str(found.network) for found in ranges]
    if store.get(resource.stored_in, _CIDR_NAME) is None:
        document = {"metadata": {"name": _CIDR_NAME}, "spec": {"cidrs": wanted}}
        try:
            await registry.create(resource, "", document, options)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        now = datetime.fromtimestamp(int(clock()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": now,
            "message": "Kubernetes default Service CIDR is ready",
        }
        status: Document = {"status": {"conditions": [condition]}}
        await registry.apply(resource, "", _CIDR_NAME, status, WriteOptions(manager=_CIDR_MANAGER, force=True), STATUS)


def stored_ranges(store: Store) -> list[str]:
    """The CIDRs of the default ServiceCIDR, empty on a new store."""
    record = store.get("servicecidrs", _CIDR_NAME)
    return list(record.document()["spec"].get("cidrs") or []) if record is not None else []


class AddressObjects:
    """Builds the IPAddress objects of allocated addresses."""

    def __init__(self, uid: Callable[[], str], clock: Callable[[], float]) -> None:
        self._uid = uid
        self._clock = clock
        self._struct = structs()["IPAddress"]

    def describe(self, address: str, namespace: str, name: str) -> bytes:
        """The object that says a service holds `address`, as a draft."""
        now = datetime.fromtimestamp(int(self._clock()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        owned: Document = {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}
        labelled: Document = {
            ".": {},
            "f:ipaddress.kubernetes.io/ip-family": {},
            "f:ipaddress.kubernetes.io/managed-by": {},
        }
        document: Document = {
            "metadata": {
                "name": address,
                "uid": self._uid(),
                "resourceVersion": "0",
                "creationTimestamp": now,
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": "IPv6" if ":" in address else "IPv4",
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
                "managedFields": [
                    {
                        "manager": _MANAGER,
                        "operation": "Update",
                        "apiVersion": "networking.k8s.io/v1",
                        "time": now,
                        "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:metadata": {"f:labels": labelled}, "f:spec": {"f:parentRef": owned}},
                    }
                ],
            },
            "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
        }
        return draft(normalise(self._struct, document))
