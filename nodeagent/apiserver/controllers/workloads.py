"""Finds the pods of a Service and the Services of a pod without a search through all objects.

Both are indexed by (namespace, label, value): a Service under one pair of its selector, a pod under each of its labels.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from nodeagent.apiserver.controllers.backends import Pod, matches
from nodeagent.apiserver.storage.records import Event, EventKind
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document

_Pair: TypeAlias = tuple[str, str, str]


class _Spec(msgspec.Struct, gc=False):
    selector: dict[str, str] | None = None


class _Service(msgspec.Struct, gc=False):
    spec: _Spec


_pod = msgspec.json.Decoder(Pod)
_service = msgspec.json.Decoder(_Service)


class Workloads:
    """An index of pods and Services, updated from their events; each update returns the Services it concerns."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._selectors: dict[str, dict[str, str]] = {}
        self._services: dict[_Pair, set[str]] = {}
        self._pods: dict[_Pair, set[str]] = {}

    def service_event(self, event: Event) -> Iterable[str]:
        """Updates the index for a Service and returns its path."""
        path, namespace = event.record.path, event.record.namespace
        old = self._selectors.pop(path, None)
        if old:
            _discard(self._services, (namespace, *next(iter(old.items()))), path)
        if event.kind is not EventKind.DELETED:
            selector = _service.decode(event.record.body).spec.selector
            if selector:
                self._selectors[path] = selector
                self._services.setdefault((namespace, *next(iter(selector.items()))), set()).add(path)
        return (path,)

    def pod_event(self, event: Event) -> Iterable[str]:
        """Updates the index for a pod and returns the Services that select it now or selected it before."""
        namespace, path = event.record.namespace, event.record.path
        before = event.before.labels if event.before is not None else {}
        after = event.record.labels if event.kind is not EventKind.DELETED else {}
        for pair in before.items() - after.items():
            _discard(self._pods, (namespace, *pair), path)
        for pair in after.items():
            self._pods.setdefault((namespace, *pair), set()).add(path)
        found: set[str] = set()
        for labels in (before, after):
            for pair in labels.items():
                candidates = self._services.get((namespace, *pair), ())
                found.update(service for service in candidates if matches(self._selectors[service], labels))
        return found

    def pods_of(self, service: Document) -> list[Pod]:
        """Returns the pods that a Service selects, by name."""
        selector: dict[str, str] = service["spec"].get("selector") or {}
        namespace = service["metadata"]["namespace"]
        if not selector:
            return []
        candidates = [self._pods.get((namespace, *pair), set()) for pair in selector.items()]
        found = []
        for path in sorted(set.intersection(*candidates)):
            record = self._store.get("pods", path)
            if record is not None:
                found.append(_pod.decode(record.body))
        return found


def _discard(index: dict[_Pair, set[str]], pair: _Pair, path: str) -> None:
    """Removes the path from the index, and the pair if it has no more paths."""
    held = index.get(pair)
    if held is not None:
        held.discard(path)
        if not held:
            del index[pair]
