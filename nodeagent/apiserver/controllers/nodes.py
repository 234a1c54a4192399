"""Marks a node as not ready when its heartbeat has stopped (pkg/controller/nodelifecycle).

A node's heartbeat is its Lease in kube-node-lease or the times in its conditions. Nodes that never had either (as a lab
declares them) are left alone.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.storage.records import Event
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339
from nodeagent.kinds.description.resources import STATUS, Catalog

LEASES: Final = "kube-node-lease"
_GRACE_SECONDS: Final = 50.0
_MESSAGE: Final = "Kubelet stopped posting node status."


class NodeHeartbeat:
    """Reconciles one node by name."""

    def __init__(self, store: Store, registry: Registry, catalog: Catalog, clock: Callable[[], float]) -> None:
        self._store = store
        self._registry = registry
        self._nodes = catalog.named("nodes")
        self._clock = clock

    def concerns_lease(self, event: Event) -> Iterable[str]:
        """Returns the name of the node that a Lease belongs to."""
        return (event.record.name,) if event.record.namespace == LEASES else ()

    async def reconcile(self, name: str) -> float | None:
        """Marks a silent node as unknown, or returns the seconds until it counts as silent."""
        record = self._store.get("nodes", name)
        if record is None:
            return None
        node = record.document()
        last = self._last_heartbeat(name, node)
        if last is None:
            return None
        left = last + _GRACE_SECONDS - self._clock()
        if left > 0:
            return left
        conditions = node["status"].get("conditions") or []
        ready = next((condition for condition in conditions if condition["type"] == "Ready"), None)
        if ready is None or ready["status"] == "Unknown":
            return None
        now = rfc3339(int(self._clock()))
        ready |= {"status": "Unknown", "lastTransitionTime": now, "reason": "NodeStatusUnknown", "message": _MESSAGE}
        options = WriteOptions(manager="kube-controller-manager")
        await self._registry.update(self._nodes, "", name, node, options, STATUS)
        return None

    def _last_heartbeat(self, name: str, node: Document) -> float | None:
        texts = [
            condition.get("lastHeartbeatTime")
            for condition in node["status"].get("conditions") or []
            if condition["type"] == "Ready"
        ]
        lease = self._store.get("leases", f"{LEASES}/{name}")
        if lease is not None:
            texts.append(lease.document()["spec"].get("renewTime"))
        moments = [datetime.fromisoformat(text).timestamp() for text in texts if text]
        return max(moments, default=None)
