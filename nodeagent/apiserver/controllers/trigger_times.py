"""The time of the change that caused a write of a slice (endpointslice triggertime.go).

Agents measure network programming latency from the annotation `endpoints.kubernetes.io/last-change-trigger-time`: the earliest
readiness transition among the pods that changed since the last write, or the creation of the Service.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodeagent.apiserver.controllers.backends import Pod
from nodeagent.kinds.description.documents import Document


@dataclass(slots=True)
class TriggerTimes:
    """Remembers for each Service the changes that were already written."""

    _seen: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _created: dict[str, str] = field(default_factory=dict)

    def of(self, path: str, service: Document, pods: Iterable[Pod]) -> str:
        """Returns the time (RFC 3339) of the earliest change not written yet; empty if unknown. Marks all as written."""
        found = {pod.metadata.name: pod.ready_since for pod in pods if pod.ready_since}
        before = self._seen.get(path, {})
        changed = [since for name, since in found.items() if before.get(name) != since]
        created = service["metadata"].get("creationTimestamp", "")
        if self._created.get(path) != created:
            changed.append(created)
        self._seen[path] = found
        self._created[path] = created
        return min(changed, default="")

    def forget(self, path: str) -> None:
        """Drops the times of a Service that was deleted."""
        self._seen.pop(path, None)
        self._created.pop(path, None)
