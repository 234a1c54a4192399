"""Metrics of requests, with kube-apiserver's names (k8s.io/apiserver/pkg/endpoints/metrics/metrics.go). Pure.

No label holds text of a client: resources, subresources and paths are those that exist; verbs and codes are few.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import floor
from typing import Final

from nodeagent.apiserver.api.request_target import Target
from nodeagent.kinds.description.resources import Resource
from nodeagent.runtime.figures.instruments import Histogram, Instrument, counter, exponential, gauge

REQUEST_SECONDS: Final = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0),
    *(4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
"""kube-apiserver's bucket bounds, for its own requests and for those to etcd."""
_SIZES: Final = exponential(1000.0, 10.0, 7)
_LABELS: Final = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
_RUNNING_LABELS: Final = ("verb", "group", "version", "resource", "subresource", "scope", "component")
_SIZE_LABELS: Final = ("component", "group", "resource", "scope", "subresource", "verb", "version")
_KINDS: Final = ("mutating", "readOnly")
_COMPONENT: Final = "apiserver"
_VERBS: Final = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}
_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_READ_VERBS: Final = frozenset({"GET", "LIST", "WATCH"})
_PATHS: Final = frozenset({"api", "apis", "healthz", "livez", "metrics", "openapi", "readyz", "version"})
_APPLY: Final = "application/apply-patch"


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a request; each has few possible values."""

    verb: str
    dry_run: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""
    component: str = _COMPONENT

    @property
    def is_read_only(self) -> bool:
        """Whether the request changes nothing."""
        return self.verb in _READ_VERBS


def labels_of_resource(
    verb: str, method: str, resource: Resource, target: Target, *, dry_run: str | None, content_type: str
) -> Labels:
    """Returns the labels of a request for a resource.

    verb: Kubernetes's verb, empty if the resource does not support the method.
    dry_run: the value of the parameter, or None without it.
    """
    shown = _VERBS.get(verb) or _shown_method(method)
    if verb == "patch" and content_type.startswith(_APPLY):
        shown = "APPLY"
    scope = "resource" if target.name or verb == "create" else "namespace" if target.namespace else "cluster"
    found = resource.subresource(target.subresource)
    return Labels(
        shown,
        "" if dry_run is None else dry_run if dry_run == "All" else "invalid",
        resource.group,
        resource.version,
        resource.plural,
        found.name if found is not None else "",
        scope,
    )


def labels_of_path(method: str, first: str) -> Labels:
    """Returns the labels of a path that is no resource; `first` is its first segment."""
    return Labels(_shown_method(method), subresource=f"/{first}" if first in _PATHS else "", component="")


def labels_without_credentials(method: str) -> Labels:
    """Returns the labels of a request without valid credentials: they do not show what it asked for."""
    return Labels(_shown_method(method))


def _shown_method(method: str) -> str:
    shown = "GET" if method == "HEAD" else method
    return shown if shown in _METHODS else "other"


class RequestFigures:
    """Counts requests. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._requests = counter("apiserver_request_total", "Requests that were answered", *_LABELS, "code")
        self._seconds = Histogram(
            "apiserver_request_duration_seconds", "Until a request was answered", REQUEST_SECONDS, _LABELS
        )
        self._sizes = Histogram("apiserver_response_sizes", "Bytes of answers to GET and LIST", _SIZES, _SIZE_LABELS)
        self._running = gauge("apiserver_longrunning_requests", "Watches that are open", *_RUNNING_LABELS)
        self._inflight = {kind: _RecentMaximum(clock) for kind in _KINDS}

    def begin(self, labels: Labels) -> float:
        """Records that work on a request began. Pass the returned time to `answered` or `ended`."""
        self._inflight[_KINDS[labels.is_read_only]].change(1)
        return self._clock()

    def answered(self, labels: Labels, began: float, code: int, length: int) -> None:
        """Records that the request was answered with `length` bytes."""
        self._inflight[_KINDS[labels.is_read_only]].change(-1)
        self._count(labels, began, code)
        if labels.verb in ("GET", "LIST") and labels.resource:
            self._sizes.observe(
                length,
                *(labels.component, labels.group, labels.resource, labels.scope, labels.subresource),
                *(labels.verb, labels.version),
            )

    def streams(self, labels: Labels) -> None:
        """Records that a request became a watch: it no longer counts as in flight, but as long-running."""
        self._inflight[_KINDS[labels.is_read_only]].change(-1)
        self._running.add(*_running(labels))

    def ended(self, labels: Labels, began: float) -> None:
        """Records that a watch ended, by the client or the server."""
        self._running.add(*_running(labels), by=-1.0)
        self._count(labels, began, 200)

    def _count(self, labels: Labels, began: float, code: int) -> None:
        about = (labels.verb, labels.dry_run, *_running(labels)[1:])
        self._requests.add(*about, str(code))
        if labels.resource or labels.subresource:
            self._seconds.observe(self._clock() - began, *about)

    def instruments(self) -> Iterator[Instrument]:
        """Yields all metrics with their present values."""
        yield from (self._requests, self._seconds, self._sizes, self._running)
        yield gauge(
            "apiserver_current_inflight_requests",
            "The most requests that were worked on at a time within the last second",
            "request_kind",
            values={(kind,): most.within_a_second() for kind, most in self._inflight.items()},
        )


def _running(labels: Labels) -> tuple[str, ...]:
    return (
        *(labels.verb, labels.group, labels.version, labels.resource),
        *(labels.subresource, labels.scope, labels.component),
    )


class _RecentMaximum:
    """The present number of requests, and the maximum within this second and the one before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now = 0
        self._second = floor(clock())
        self._most = 0
        self._before = 0

    def change(self, by: int) -> None:
        """Adds `by` to the present number."""
        self._advance()
        self._now += by
        self._most = max(self._most, self._now)

    def within_a_second(self) -> int:
        """The most there were."""
        self._advance()
        return max(self._most, self._before)

    def _advance(self) -> None:
        second = floor(self._clock())
        if second != self._second:
            self._before = self._most if second == self._second + 1 else self._now
            self._second, self._most = second, self._now
