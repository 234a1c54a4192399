"""Removes pods whose grace period has passed.

In a cluster the kubelet reports when a pod has ended. Here nothing runs pods, so they end with their grace period: the pod is
terminating for as long as it requested, which is what proxies and endpoints need to see.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.write_rules import DeleteOptions
from nodeagent.apiserver.storage.records import Event
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.resources import Catalog
from nodeagent.kinds.description.status import ignoring


class PodRemoval:
    """Reconciles one pod by path."""

    def __init__(self, store: Store, registry: Registry, catalog: Catalog, clock: Callable[[], float]) -> None:
        self._store = store
        self._registry = registry
        self._pods = catalog.named("pods")
        self._clock = clock

    def concerns(self, event: Event) -> Iterable[str]:
        """Returns the path of a terminating pod."""
        return (event.record.path,) if b'"deletionTimestamp"' in event.record.body else ()

    async def reconcile(self, path: str) -> float | None:
        """Removes the pod, or returns the seconds that it has left."""
        record = self._store.get("pods", path)
        if record is None:
            return None
        meta = record.document()["metadata"]
        end = meta.get("deletionTimestamp")
        if not end or meta.get("finalizers"):
            return None
        left = datetime.fromisoformat(end).timestamp() - self._clock()
        if left > 0:
            return left
        namespace, _, name = path.partition("/")
        with ignoring("NotFound"):
            await self._registry.delete(self._pods, namespace, name, DeleteOptions(uid=meta["uid"], grace_seconds=0))
        return None
