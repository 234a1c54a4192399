"""Metrics of changes of objects, under kube-proxy's names: received changes, waiting services, and when a pass was last requested."""

from collections.abc import Callable, Iterable, Iterator

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Service, StoredObject
from nodeagent.runtime.figures.instruments import Instrument, counter, gauge

PREFIX = "kubeproxy_sync_proxy_rules"


class ChangeFigures:
    """Counts changes. is_dirty: whether a service waits for a pass. wall: seconds of the time of day."""

    def __init__(
        self, families: Iterable[Family], *, is_dirty: Callable[[ObjectKey], bool], wall: Callable[[], float]
    ) -> None:
        self._families = tuple(family.value for family in families)
        self._is_dirty = is_dirty
        self._wall = wall
        self._waiting: dict[str, set[ObjectKey]] = {"endpoint": set(), "service": set()}
        self._queued_at: float | None = None
        self._changes = {
            what: counter(f"{PREFIX}_{what}_changes_total", f"Changes of {what}s that were received")
            for what in self._waiting
        }
        for what in self._changes.values():
            what.set(0.0)

    def object_changed(self, kind: type[StoredObject], service: ObjectKey) -> None:
        """Called for each change of a Service, and of each of its EndpointSlices."""
        what = "service" if kind is Service else "endpoint"
        self._changes[what].add()
        self._waiting[what].add(service)
        self._queued_at = self._wall()

    def pass_ended(self) -> None:
        """Drops the services that do not wait any more."""
        for waiting in self._waiting.values():
            waiting.intersection_update([key for key in waiting if self._is_dirty(key)])

    def instruments(self) -> Iterator[Instrument]:
        """Yields all of them, as they are now."""
        queued = gauge(f"{PREFIX}_last_queued_timestamp_seconds", "When a sync was last asked for", "ip_family")
        if self._queued_at is not None:
            for family in self._families:
                queued.set(self._queued_at, family)
        yield queued
        for what, waiting in self._waiting.items():
            yield self._changes[what]
            pending = sum(map(self._is_dirty, waiting))
            yield gauge(
                f"{PREFIX}_{what}_changes_pending", f"Services with changed {what}s that wait", values={(): pending}
            )
