"""Writes the EndpointSlices and the Endpoints of Services with a selector."""

from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.apiserver.controllers import backends
from nodeagent.apiserver.controllers.slice_plan import Group, SlicePlan, plan_slices
from nodeagent.apiserver.controllers.trigger_times import TriggerTimes
from nodeagent.apiserver.controllers.workloads import Workloads
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.write_rules import DeleteOptions
from nodeagent.apiserver.storage.records import Event, EventKind
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import Catalog
from nodeagent.kinds.description.status import ignoring

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
HEADLESS: Final = "service.kubernetes.io/headless"
TRIGGER_TIME: Final = "endpoints.kubernetes.io/last-change-trigger-time"
SLICE_CONTROLLER: Final = "endpointslice-controller.k8s.io"
_ENDPOINTS_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_CONTROLLER: Final = "endpoint-controller"
_MANAGER: Final = "kube-controller-manager"
_RESERVED: Final = (SERVICE_NAME, MANAGED_BY, HEADLESS)


class SliceIndex:
    """The slices that one controller manages, by Service."""

    def __init__(self, store: Store, controller: str) -> None:
        self._store = store
        self._controller = controller
        self._slices: dict[str, set[str]] = {}

    def event(self, event: Event) -> Iterable[str]:
        """Updates the index. Returns the Services to which the slice belongs or belonged."""
        found = set()
        for record, present in ((event.before, False), (event.record, event.kind is not EventKind.DELETED)):
            if record is None or record.labels.get(MANAGED_BY) != self._controller:
                continue
            service = f"{record.namespace}/{record.labels.get(SERVICE_NAME, '')}"
            found.add(service)
            held = self._slices.setdefault(service, set())
            if present:
                held.add(record.path)
            else:
                held.discard(record.path)
            if not held:
                del self._slices[service]
        return found

    def of(self, service: str) -> list[Document]:
        """Returns the Service's slices by name, from the store: the index may be slightly behind."""
        records = [self._store.get("endpointslices", path) for path in sorted(self._slices.get(service, ()))]
        return [record.document() for record in records if record is not None]


class SliceWriter:
    """Carries out slice plans for one controller."""

    def __init__(self, registry: Registry, catalog: Catalog, controller: str) -> None:
        self._registry = registry
        self._slices = catalog.named("endpointslices", "discovery.k8s.io")
        self._controller = controller

    async def write(
        self,
        owner: Document,
        kind: str,
        existing: list[Document],
        plan: SlicePlan,
        labels: Mapping[str, str],
        trigger: str = "",
    ) -> None:
        """Writes the slices of `owner`. Raises ApiError.

        kind: of the owner.
        labels: copied to the slices.
        trigger: time of the change that caused the write.
        """
        namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
        wanted = {**labels, MANAGED_BY: self._controller, SERVICE_NAME: name}
        options = WriteOptions(manager=_MANAGER)
        by_name = {found["metadata"]["name"]: found for found in existing}
        for slice_name, contents in plan.update.items():
            await self._update(namespace, {**by_name[slice_name], **contents}, wanted, trigger, options)
        for contents in plan.create:
            meta: Document = {"generateName": f"{name}-", "namespace": namespace, "labels": wanted}
            if trigger:
                meta["annotations"] = {TRIGGER_TIME: trigger}
            reference = {"apiVersion": "v1", "kind": kind, "name": name, "uid": owner["metadata"]["uid"]}
            meta["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
            await self._registry.create(self._slices, namespace, {"metadata": meta, **contents}, options)
        for slice_name in plan.delete:
            await self.delete(namespace, slice_name)
        for slice_name, found in by_name.items():
            relabelled = found["metadata"].get("labels") != wanted
            if relabelled and slice_name not in plan.update and slice_name not in plan.delete:
                await self._update(namespace, found, wanted, trigger, options)

    async def _update(
        self, namespace: str, found: Document, labels: Mapping[str, str], trigger: str, options: WriteOptions
    ) -> None:
        found["metadata"]["labels"] = dict(labels)
        found["metadata"]["annotations"] = _triggered(found["metadata"], trigger)
        await self._registry.update(self._slices, namespace, found["metadata"]["name"], found, options)

    async def delete(self, namespace: str, name: str) -> None:
        """Deletes a slice, if it still exists."""
        with ignoring("NotFound"):
            await self._registry.delete(self._slices, namespace, name, DeleteOptions())


class ServiceEndpoints:
    """Reconciles one Service by path: its slices, then its Endpoints."""

    def __init__(self, store: Store, registry: Registry, catalog: Catalog) -> None:
        self._store = store
        self._registry = registry
        self._endpoints = catalog.named("endpoints")
        self._writer = SliceWriter(registry, catalog, SLICE_CONTROLLER)
        self._triggers = TriggerTimes()
        self.workloads = Workloads(store)
        self.slices = SliceIndex(store, SLICE_CONTROLLER)

    def node_event(self, event: Event) -> Iterable[str]:
        """Returns all Services if the zone of a node changed, else none."""
        before = event.before.labels.get(backends.ZONE_LABEL) if event.before is not None else None
        after = event.record.labels.get(backends.ZONE_LABEL) if event.kind is not EventKind.DELETED else None
        if before == after or (event.before is None and after is None):
            return ()
        return tuple(self._store.collection("services").records)

    def endpoints_event(self, event: Event) -> Iterable[str]:
        """Returns the Service of Endpoints that this controller manages, so that a foreign change of them is undone."""
        ours = event.record.labels.get(_ENDPOINTS_MANAGED_BY) == _ENDPOINTS_CONTROLLER
        return (event.record.path,) if ours else ()

    async def reconcile(self, path: str) -> float | None:
        """Writes or deletes the slices and Endpoints of a Service. Raises ApiError if a write was refused; the caller retries."""
        namespace = path.partition("/")[0]
        record = self._store.get("services", path)
        if record is None:
            self._triggers.forget(path)
            for found in self.slices.of(path):
                await self._writer.delete(namespace, found["metadata"]["name"])
            await self._remove_endpoints(path)
            return None
        service = record.document()
        if not service["spec"].get("selector") or service["spec"].get("type") == "ExternalName":
            return None
        if self._is_ending(namespace):
            return None
        pods = self.workloads.pods_of(service)
        existing = self.slices.of(path)
        families = list(backends.families_of(service))
        plan = plan_slices(existing, self._groups(service, pods, families), families)
        labels = _carried_labels(service)
        trigger = self._triggers.of(path, service, pods)
        await self._writer.write(service, "Service", existing, plan, labels, trigger)
        await self._write_endpoints(service, backends.legacy_subsets(service, pods), trigger)
        return None

    def _is_ending(self, namespace: str) -> bool:
        record = self._store.get("namespaces", namespace)
        return record is None or b'"deletionTimestamp"' in record.body

    def _groups(self, service: Document, pods: list[backends.Pod], families: list[str]) -> dict[Group, list[Document]]:
        groups: dict[Group, list[Document]] = {}
        for pod in pods:
            node = self._store.get("nodes", pod.spec.node_name) if pod.spec.node_name else None
            ports = backends.target_ports(service, pod)
            for family in families:
                endpoint = backends.endpoint(service, pod, family, node.labels if node is not None else {})
                if endpoint is not None:
                    groups.setdefault((family, ports), []).append(endpoint)
        return groups

    async def _write_endpoints(self, service: Document, subsets: list[Document], trigger: str) -> None:
        meta = service["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        labels = {**(meta.get("labels") or {}), _ENDPOINTS_MANAGED_BY: _ENDPOINTS_CONTROLLER}
        if service["spec"].get("clusterIP") == "None":
            labels[HEADLESS] = ""
        record = self._store.get("endpoints", f"{namespace}/{name}")
        options = WriteOptions(manager=_MANAGER)
        contents: Document = {"subsets": subsets} if subsets else {}
        if record is None:
            created: Document = {"name": name, "labels": labels}
            if trigger:
                created["annotations"] = {TRIGGER_TIME: trigger}
            await self._registry.create(self._endpoints, namespace, {"metadata": created, **contents}, options)
            return
        live = record.document()
        if live.get("subsets", []) == subsets and live["metadata"].get("labels") == labels:
            return
        updated = {**live["metadata"], "labels": labels, "annotations": _triggered(live["metadata"], trigger)}
        await self._registry.update(self._endpoints, namespace, name, {"metadata": updated, **contents}, options)

    async def _remove_endpoints(self, path: str) -> None:
        record = self._store.get("endpoints", path)
        if record is None or record.labels.get(_ENDPOINTS_MANAGED_BY) != _ENDPOINTS_CONTROLLER:
            return
        namespace, _, name = path.partition("/")
        with ignoring("NotFound"):
            await self._registry.delete(self._endpoints, namespace, name, DeleteOptions())


def _triggered(meta: Document, trigger: str) -> Document:
    """Returns the annotations for a write caused by a change at `trigger`. Without a known time, an older one is removed."""
    kept = {key: value for key, value in (meta.get("annotations") or {}).items() if key != TRIGGER_TIME}
    return {**kept, TRIGGER_TIME: trigger} if trigger else kept


def _carried_labels(service: Document) -> dict[str, str]:
    """Returns the labels that slices inherit from the Service, without those the controller sets; marks headless Services."""
    labels = {key: value for key, value in (service["metadata"].get("labels") or {}).items() if key not in _RESERVED}
    if service["spec"].get("clusterIP") == "None":
        labels[HEADLESS] = ""
    return labels
