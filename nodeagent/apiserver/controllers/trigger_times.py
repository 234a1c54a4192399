"""When the change happened that a slice is written for (endpointslice triggertime.go).

The annotation `endpoints.kubernetes.io/last-change-trigger-time` is what agents measure network programming latency from:
the earliest readiness transition among the pods that changed since the last write, or the creation of the service.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nodeagent.apiserver.controllers.backends import Pod
from nodeagent.kinds.description.documents import Document


@dataclass(slots=True)
class TriggerTimes:
    """Remembers for each service what its last write was made for."""

    _seen: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _created: dict[str, str] = field(default_factory=dict)

    def of(self, path: str, service: Document, pods: Iterable[Pod]) -> str:
        """The RFC 3339 time of the earliest change not yet written, empty when none is known. Remembers them as written."""
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
        """The service is gone."""
        self._seen.pop(path, None)
        self._created.pop(path, None)
