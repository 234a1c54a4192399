"""The metrics of kube-proxy, under its names, in its units and buckets, so that its dashboards and alerts continue to work.

Names and bounds: kubernetes/kubernetes, pkg/proxy/metrics/metrics.go. kube-proxy syncs each family separately and we all of
them in one pass, so a family's duration is the pass without the tables of the other families.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import FrontendKind, ServiceState, Unserved
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.objects import ANNOTATION_TRIGGER_TIME, EndpointSlice
from nodeagent.model.reports import CleaningReport, PassReport
from nodeagent.proxy.observe.dataplane_listeners import DataplaneListener
from nodeagent.proxy.observe.health import HEALTHZ, LIVEZ
from nodeagent.proxy.observe.metrics.change_figures import PREFIX, ChangeFigures
from nodeagent.runtime.figures.instruments import Histogram, Instrument, counter, exponential, gauge, linear

SYNC_SECONDS = exponential(0.001, 2, 15)
PROGRAMMING_SECONDS = (*linear(0.25, 0.25, 2), *linear(1, 1, 59), *linear(60, 5, 12), *linear(120, 30, 7))


@dataclass(frozen=True, slots=True)
class ProxyViews:
    """The functions that return the present state. slices_of: a service's. health_counts: answers of the health server by path and status."""

    slices_of: Callable[[ObjectKey], Collection[EndpointSlice]]
    health_counts: Callable[[], Mapping[tuple[str, int], int]]


class KubeProxyFigures(DataplaneListener):
    """Counts passes and walks over tracked flows. changes: the counters of changed objects. wall: seconds of the time of day."""

    def __init__(
        self, families: Iterable[Family], changes: ChangeFigures, views: ProxyViews, *, wall: Callable[[], float]
    ) -> None:
        self._families = tuple(family.value for family in families)
        self._views = views
        self._wall = wall
        self._started = wall()
        self._observed: dict[ObjectKey, datetime] = {}
        self._changes = changes
        self._unserved: dict[ObjectKey, frozenset[tuple[str, str, ServicePortName]]] = {}
        self._sync = Histogram(f"{PREFIX}_duration_seconds", "Time of a sync", SYNC_SECONDS, ("ip_family",))
        self._full = Histogram(
            "kubeproxy_sync_full_proxy_rules_duration_seconds",
            "Time of a sync that compared everything",
            SYNC_SECONDS,
            ("ip_family",),
        )
        self._partial = Histogram(
            "kubeproxy_sync_partial_proxy_rules_duration_seconds",
            "Time of a sync of what had changed",
            SYNC_SECONDS,
            ("ip_family",),
        )
        self._programming = Histogram(
            "kubeproxy_network_programming_duration_seconds",
            "From the change of an endpoint in the cluster until it is programmed here",
            PROGRAMMING_SECONDS,
            ("ip_family",),
        )
        self._last = gauge(f"{PREFIX}_last_timestamp_seconds", "When the last sync succeeded", "ip_family")
        self._failures = counter(f"{PREFIX}_nftables_sync_failures_total", "Failed syncs", "ip_family")
        self._cleanup_failures = counter(
            f"{PREFIX}_nftables_cleanup_failures_total",
            "Always 0: nothing stale is left that a later step would have to remove",
            "ip_family",
        )
        self._conntrack = Histogram(
            "kubeproxy_conntrack_reconciler_sync_duration_seconds",
            "Time of a walk over tracked UDP flows",
            SYNC_SECONDS,
            ("ip_family",),
        )
        self._flows = counter(
            "kubeproxy_conntrack_reconciler_deleted_entries_total", "Tracked flows that were ended", "ip_family"
        )
        for family in self._families:
            self._programming.begin(family)
            self._failures.set(0.0, family)
            self._cleanup_failures.set(0.0, family)
            self._flows.set(0.0, family)

    def passed(self, report: PassReport) -> None:
        now = self._wall()
        tables = sum([table.seconds for table in report.families.values()])
        beside_tables = report.seconds - tables
        programmed: list[str] = []
        for family, table in report.families.items():
            name, seconds = family.value, max(0.0, beside_tables + table.seconds)
            self._sync.observe(seconds, name)
            (self._full if report.full else self._partial).observe(seconds, name)
            if table.ok:
                programmed.append(name)
                self._last.set(now, name)
            else:
                self._failures.add(name)
        for moment in self._triggers(report.dirty):
            for name in programmed:
                self._programming.observe(max(0.0, now - moment.timestamp()), name)
        for key, state in report.changed.items():
            if state is not None and (unserved := _without_local_endpoints(state)):
                self._unserved[key] = unserved
            elif self._unserved:
                self._unserved.pop(key, None)
        self._changes.pass_ended()

    def conntrack_cleaned(self, report: CleaningReport) -> None:
        self._conntrack.observe(report.seconds, report.family.value)
        self._flows.add(report.family.value, by=report.deleted)

    def instruments(self) -> Iterator[Instrument]:
        yield from (self._sync, self._full, self._partial, self._programming, self._last)
        yield from self._changes.instruments()
        yield self._no_local_endpoints()
        yield from (self._failures, self._cleanup_failures, self._conntrack, self._flows)
        health_counts = self._views.health_counts()
        for path, name in ((HEALTHZ, "healthz"), (LIVEZ, "livez")):
            answers = counter(f"kubeproxy_proxy_{name}_total", f"Answers of {path}", "code")
            for code in (200, 503):
                answers.set(health_counts.get((path, code), 0), str(code))
            yield answers

    def _no_local_endpoints(self) -> Instrument:
        found = gauge(
            f"{PREFIX}_no_local_endpoints_total",
            "Service ports with policy Local that have endpoints, and none on this node",
            "ip_family",
            "traffic_policy",
        )
        for family in self._families:
            for policy in ("internal", "external"):
                found.set(0.0, family, policy)
        for unserved in self._unserved.values():
            for name, policy, _ in unserved:
                found.add(name, policy)
        return found

    def _triggers(self, services: Iterable[ObjectKey]) -> Iterator[datetime]:
        """Yields the times of the changes that these services' slices name, each once, and none from before the start."""
        for service in services:
            latest: datetime | None = None
            before = self._observed.get(service)
            for endpoints in self._views.slices_of(service):
                moment = _trigger_time(endpoints) if endpoints.metadata.annotations else None
                if moment is None or moment.timestamp() < self._started or (before is not None and moment <= before):
                    continue
                yield moment
                latest = moment if latest is None else max(latest, moment)
            if latest is not None:
                self._observed[service] = latest
            elif before is not None and not self._views.slices_of(service):
                del self._observed[service]


def _trigger_time(endpoints: EndpointSlice) -> datetime | None:
    """Returns the time that the slice names; None if it names none, or an invalid one."""
    text = (endpoints.metadata.annotations or {}).get(ANNOTATION_TRIGGER_TIME)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _without_local_endpoints(state: ServiceState) -> frozenset[tuple[str, str, ServicePortName]]:
    """Returns (family, policy, service port) for which other nodes have endpoints and this node has none."""
    found = [one for one in state.frontends if one.route.otherwise is Unserved.DROP and not one.route.backends]
    if not found:
        return frozenset()
    return frozenset(
        (one.family.value, "internal" if one.kind is FrontendKind.CLUSTER_IP else "external", one.service_port)
        for one in found
    )
