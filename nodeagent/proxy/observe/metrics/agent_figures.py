"""Metrics beyond those of kube-proxy: commits, the queue, foreign changes, the source, maps, the event loop."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.reports import DriftReport, MapFill, NodeReport, PassReport, PurgeReport
from nodeagent.proxy.observe.dataplane_listeners import DataplaneListener
from nodeagent.proxy.observe.metrics.node_figures import node_figures
from nodeagent.runtime.figures.instruments import Histogram, Instrument, counter, exponential, gauge

COMMIT_SECONDS = exponential(0.0001, 2, 18)
"""0.1 ms to 13 s: a change of one endpoint takes a third of a millisecond, the first load of a big cluster seconds."""
_KINDS_OF_TABLES = ("table", "sets", "chains", "rules", "elements")
_OTHER_KINDS = (("interface", "link"), ("interface", "addresses"), ("interface", "routes"), ("sysctl", "value"))
LAG_SECONDS = exponential(0.001, 2, 12)


class FollowingProgress(Protocol):
    """The progress of following one resource."""

    @property
    def resource(self) -> str: ...
    @property
    def lists(self) -> int: ...
    @property
    def last_received(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Views:
    """The functions that return the present values at each scrape. oldest_change: loop time, None for none; pending: services in
    the queue; objects: by kind; node: as last seen."""

    oldest_change: Callable[[], float | None]
    pending: Callable[[], int]
    problems: Callable[[], Collection[Problem]]
    objects: Callable[[], Mapping[str, int]]
    following: Callable[[], Iterable[FollowingProgress]]
    maps: Callable[[], Iterable[MapFill]]
    node: Callable[[], NodeReport]


class AgentFigures(DataplaneListener):
    """Counts passes and work beside the passes. clock: loop time; version: of the agent."""

    def __init__(self, views: Views, *, clock: Callable[[], float], version: str) -> None:
        self._views = views
        self._clock = clock
        self._services = 0
        self._build = gauge("nodeagent_build_info", "1; the version is a label", "version", values={(version,): 1})
        self._commit = Histogram(
            "nodeagent_commit_duration_seconds",
            "From the plan to the kernel's confirmation: syncs that changed something",
            COMMIT_SECONDS,
            ("ip_family",),
        )
        self._elements = counter("nodeagent_commit_elements_total", "Elements written or removed", "ip_family")
        self._messages = counter("nodeagent_commit_messages_total", "Operations in transactions", "ip_family")
        self._new_tables = counter("nodeagent_tables_made_total", "Tables rebuilt", "ip_family")
        self._waited = Histogram(
            "nodeagent_queue_wait_seconds", "How long the oldest change of a pass had waited", COMMIT_SECONDS
        )
        self._drift = counter("nodeagent_drift_found_total", "Foreign changes that were found", "object")
        self._repairs = counter("nodeagent_repairs_total", "Foreign changes that were repaired", "object")
        self._audit_drift = counter(
            "nodeagent_audit_drift_total", "Drift that an audit found and the kernel had not reported", "object", "kind"
        )
        self._lag = Histogram("nodeagent_event_loop_lag_seconds", "How late the event loop was", LAG_SECONDS)
        self._forgotten = counter(
            "nodeagent_affinity_forgotten_total", "Clients of endpoints that left, forgotten", "ip_family"
        )
        self._unrepaired = Counter[str]()
        for kind in _KINDS_OF_TABLES:
            for family in Family:
                self._audit_drift.set(0.0, family.value, kind)
        for what, kind in _OTHER_KINDS:
            self._audit_drift.set(0.0, what, kind)
        for what in (*(family.value for family in Family), "interface"):
            self._drift.set(0.0, what)
            self._repairs.set(0.0, what)

    def passed(self, report: PassReport) -> None:
        self._services = report.services
        if report.waited_seconds or report.dirty:
            self._waited.observe(report.waited_seconds)
        for family, table in report.families.items():
            name = family.value
            if table.messages:
                self._commit.observe(table.seconds, name)
            self._elements.add(name, by=table.touched)
            self._messages.add(name, by=table.messages)
            self._new_tables.add(name, by=table.new_table)
        for what in report.disturbed:
            self._drift.add(what)
        self._unrepaired.update(report.disturbed)
        if not self._unrepaired:
            return
        right = {family.value for family in report.programmed} | ({"interface"} if report.interface_in_sync else set())
        for what in right & self._unrepaired.keys():
            self._repairs.add(what, by=self._unrepaired.pop(what))

    def loop_was_late(self, seconds: float) -> None:
        """Called periodically with the seconds that the event loop was late."""
        self._lag.observe(seconds)

    def affinity_purged(self, report: PurgeReport) -> None:
        """Called when stale affinity has been deleted."""
        self._forgotten.add(report.family.value, by=report.forgotten)

    def drift_found(self, report: DriftReport) -> None:
        """Called when something is not as programmed any more."""
        if not report.reported:
            self._audit_drift.add(report.object, report.kind)

    def instruments(self) -> Iterator[Instrument]:
        yield from (self._build, self._commit, self._elements, self._messages, self._new_tables, self._waited)
        yield from (self._drift, self._repairs, self._audit_drift, self._lag, self._forgotten)
        now, views = self._clock(), self._views
        oldest = views.oldest_change()
        age = 0.0 if oldest is None else max(0.0, now - oldest)
        yield gauge("nodeagent_queue_age_seconds", "Age of the oldest change that waits", values={(): age})
        yield gauge("nodeagent_queue_services", "Services that wait for a pass", values={(): views.pending()})
        yield gauge("nodeagent_services", "Services that are programmed or have a problem", values={(): self._services})
        problems = gauge("nodeagent_problems", "What is wrong now, by reason", "reason")
        for problem in views.problems():
            problems.add(problem.reason)
        yield problems
        yield gauge(
            "nodeagent_cache_objects",
            "API objects that are held",
            "kind",
            values={(kind,): count for kind, count in views.objects().items()},
        )
        yield from self._of_resources(now)
        yield from node_figures(views.node())

    def _of_resources(self, now: float) -> Iterator[Instrument]:
        relists = counter("nodeagent_relists_total", "Full lists after the first", "resource")
        age = gauge(
            "nodeagent_watch_age_seconds", "Time since the server last sent anything about a resource", "resource"
        )
        for one in self._views.following():
            relists.set(max(0, one.lists - 1), one.resource)
            if one.last_received is not None:
                age.set(max(0.0, now - one.last_received), one.resource)
        yield from (relists, age)
