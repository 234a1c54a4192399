"""Deletes the objects in a namespace that is being deleted, then removes its finalizer."""

from collections.abc import Iterable
from typing import Final

from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.dependents import BACKGROUND
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.write_rules import DeleteOptions
from nodeagent.apiserver.storage.records import Event
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.resources import Catalog
from nodeagent.kinds.description.status import ignoring
from nodeagent.kinds.namespace import FINALIZE

_FINALIZER: Final = "kubernetes"
_RETRY_SECONDS: Final = 1.0


class NamespaceDeletion:
    """Reconciles one namespace by name."""

    def __init__(self, store: Store, registry: Registry, catalog: Catalog) -> None:
        self._store = store
        self._registry = registry
        self._namespaces = catalog.named("namespaces")
        stored = {row.stored_in: row for row in catalog.rows if row.namespaced and not row.converts}
        self._contents = list(stored.values())

    def concerns(self, event: Event) -> Iterable[str]:
        """Returns the name of a namespace that is being deleted."""
        return (event.record.path,) if b'"deletionTimestamp"' in event.record.body else ()

    async def reconcile(self, name: str) -> float | None:
        """Deletes the remaining objects, or removes the finalizer if nothing remains."""
        record = self._store.get("namespaces", name)
        if record is None:
            return None
        namespace = record.document()
        finalizers = namespace["spec"].get("finalizers") or []
        if not namespace["metadata"].get("deletionTimestamp") or _FINALIZER not in finalizers:
            return None
        if await self._empty(name):
            namespace["spec"]["finalizers"] = [finalizer for finalizer in finalizers if finalizer != _FINALIZER]
            options = WriteOptions(manager="kube-controller-manager")
            await self._registry.update(self._namespaces, "", name, namespace, options, FINALIZE.name)
            return None
        return _RETRY_SECONDS

    async def _empty(self, name: str) -> bool:
        left = 0
        for resource in self._contents:
            for path in self._store.collection(resource.stored_in).paths(f"{name}/"):
                with ignoring("NotFound"):
                    # The namespace is being deleted, so pods get no grace period.
                    outcome = await self._registry.delete(
                        resource, name, path.partition("/")[2], DeleteOptions(grace_seconds=0, policy=BACKGROUND)
                    )
                    left += not outcome.gone
        return left == 0
