"""kube-proxy's names mean here what they mean there."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, Scope, ServiceState, Unserved
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.objects import ANNOTATION_TRIGGER_TIME, EndpointSlice, ObjectMeta, Service
from nodeagent.model.reports import CleaningReport, PassReport, TableReport
from nodeagent.proxy.observe.metrics.change_figures import ChangeFigures
from nodeagent.proxy.observe.metrics.kube_proxy_figures import (
    PROGRAMMING_SECONDS,
    SYNC_SECONDS,
    KubeProxyFigures,
    ProxyViews,
)
from nodeagent.runtime.figures.exposition import Exposition
from tests.unit.proxy.observe.metrics.conftest import Reader

WEB = ObjectKey("default", "web")
START = 1_800_000_000.0
HERE, THERE = Backend("10.244.1.1", 80, local=True), Backend("10.244.2.1", 80)
DROPPED = Route((), Scope.LOCAL, Unserved.DROP)
REFUSED = Route((), Scope.LOCAL, Unserved.REFUSE)


@dataclass
class Surroundings:
    """What the figures look up."""

    now: float = START
    slices: dict[ObjectKey, list[EndpointSlice]] = field(default_factory=dict)
    dirty: set[ObjectKey] = field(default_factory=set)
    health: dict[tuple[str, int], int] = field(default_factory=dict)

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        return self.slices.get(service, [])

    def figures(self, *families: Family) -> KubeProxyFigures:
        families = families or (Family.IPV4,)
        self.changes = ChangeFigures(families, is_dirty=self.dirty.__contains__, wall=lambda: self.now)
        views = ProxyViews(self.slices_of, lambda: self.health)
        return KubeProxyFigures(families, self.changes, views, wall=lambda: self.now)


@pytest.fixture
def world() -> Surroundings:
    return Surroundings()


def a_pass(
    families: Mapping[Family, TableReport] | None = None,
    *,
    seconds: float = 0.5,
    full: bool = False,
    changed: Mapping[ObjectKey, ServiceState | None] | None = None,
    looked_at: Collection[ObjectKey] = (),
) -> PassReport:
    return PassReport(
        100.0,
        100.0 + seconds,
        families or {Family.IPV4: TableReport()},
        changed or {},
        full=full,
        dirty=frozenset(looked_at),
    )


def slice_changed_at(moment: float, name: str = "web-1") -> EndpointSlice:
    text = datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
    return EndpointSlice(ObjectMeta(name=name, namespace="default", annotations={ANNOTATION_TRIGGER_TIME: text}))


def service(*frontends: tuple[FrontendKind, Route]) -> ServiceState:
    return ServiceState(
        WEB,
        frontends=tuple(
            Frontend(
                kind,
                Family.IPV4,
                f"10.96.0.{number}",
                Protocol.TCP,
                80,
                ServicePortName(WEB, "http", Protocol.TCP),
                route,
            )
            for number, (kind, route) in enumerate(frontends, 1)
        ),
    )


def test_the_bounds_are_kube_proxys() -> None:
    assert SYNC_SECONDS[:3] == (0.001, 0.002, 0.004)
    assert (len(SYNC_SECONDS), SYNC_SECONDS[-1]) == (15, 16.384)
    assert PROGRAMMING_SECONDS[:4] == (0.25, 0.5, 1, 2)
    assert [bound for bound in PROGRAMMING_SECONDS if bound >= 58] == [
        *(58, 59, *range(60, 116, 5), 120, 150, 180, 210, 240, 270, 300)
    ]


def test_a_familys_sync_is_the_pass_without_the_tables_of_the_others(world: Surroundings, reader: Reader) -> None:
    figures = world.figures(Family.IPV4, Family.IPV6)
    tables = {Family.IPV4: TableReport(seconds=0.25), Family.IPV6: TableReport(seconds=0.5)}
    figures.passed(a_pass(tables, seconds=1.0, full=True))
    figures.passed(a_pass(tables, seconds=2.0))

    found = reader.instruments(figures.instruments())

    def seconds(kind: str, family: str) -> float:
        return found[reader.key(f"kubeproxy_sync_{kind}proxy_rules_duration_seconds_sum", ip_family=family)]

    assert [seconds(kind, "IPv4") for kind in ("", "full_", "partial_")] == [2.0, 0.5, 1.5]
    assert [seconds(kind, "IPv6") for kind in ("", "full_", "partial_")] == [2.5, 0.75, 1.75]


def test_only_a_sync_that_succeeded_moves_the_timestamp(world: Surroundings, reader: Reader) -> None:
    figures = world.figures()
    figures.passed(a_pass())
    world.now += 60
    figures.passed(a_pass({Family.IPV4: TableReport(error="no")}))
    found = reader.instruments(figures.instruments())
    assert found[reader.key("kubeproxy_sync_proxy_rules_last_timestamp_seconds", ip_family="IPv4")] == START
    assert found[reader.key("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", ip_family="IPv4")] == 1


def test_changes_are_counted_by_kind_and_wait_until_a_pass_takes_them(world: Surroundings, reader: Reader) -> None:
    figures = world.figures()
    world.dirty.add(WEB)
    for kind in (Service, EndpointSlice, EndpointSlice):
        world.changes.object_changed(kind, WEB)

    def values(which: str) -> list[float]:
        found = reader.instruments(figures.instruments())
        return [
            found[reader.key(f"kubeproxy_sync_proxy_rules_{what}_changes_{which}")] for what in ("service", "endpoint")
        ]

    assert (values("total"), values("pending")) == ([1, 2], [1, 1])
    world.dirty.clear()
    figures.passed(a_pass(looked_at=[WEB]))
    assert (values("total"), values("pending")) == ([1, 2], [0, 0])


class TestNetworkProgramming:
    @staticmethod
    def observed(figures: KubeProxyFigures, reader: Reader) -> tuple[float, float]:
        found = reader.instruments(figures.instruments())
        name = "kubeproxy_network_programming_duration_seconds"
        return (
            found.get(reader.key(f"{name}_count", ip_family="IPv4"), 0.0),
            found.get(reader.key(f"{name}_sum", ip_family="IPv4"), 0.0),
        )

    def test_the_latency_is_from_the_change_of_the_slice_to_the_end_of_the_pass(
        self, world: Surroundings, reader: Reader
    ) -> None:
        figures = world.figures()
        world.slices[WEB] = [slice_changed_at(START + 10)]
        world.now = START + 13
        figures.passed(a_pass(looked_at=[WEB]))
        assert self.observed(figures, reader) == (1, 3.0)

    def test_a_change_counts_once(self, world: Surroundings, reader: Reader) -> None:
        figures = world.figures()
        world.slices[WEB] = [slice_changed_at(START + 10)]
        world.now = START + 13
        figures.passed(a_pass(looked_at=[WEB]))
        figures.passed(a_pass(looked_at=[WEB], full=True))
        assert self.observed(figures, reader)[0] == 1
        world.slices[WEB] = [slice_changed_at(START + 12)]
        figures.passed(a_pass(looked_at=[WEB]))
        assert self.observed(figures, reader) == (2, 4.0)

    def test_changes_before_the_start_do_not_count(self, world: Surroundings, reader: Reader) -> None:
        figures = world.figures()
        world.slices[WEB] = [slice_changed_at(START - 3600)]
        figures.passed(a_pass(looked_at=[WEB], full=True))
        assert self.observed(figures, reader) == (0, 0)

    def test_a_family_that_failed_has_programmed_nothing(self, world: Surroundings, reader: Reader) -> None:
        figures = world.figures()
        world.slices[WEB] = [slice_changed_at(START + 1)]
        world.now = START + 2
        figures.passed(a_pass({Family.IPV4: TableReport(error="no")}, looked_at=[WEB]))
        assert self.observed(figures, reader) == (0, 0)

    @pytest.mark.parametrize("text", ["yesterday", "2026-01-01T00:00:00", ""])
    def test_an_invalid_time_is_ignored(self, world: Surroundings, reader: Reader, text: str) -> None:
        figures = world.figures()
        world.slices[WEB] = [EndpointSlice(ObjectMeta(name="web-1", annotations={ANNOTATION_TRIGGER_TIME: text}))]
        figures.passed(a_pass(looked_at=[WEB]))
        assert self.observed(figures, reader) == (0, 0)


@pytest.mark.parametrize(
    ("frontends", "internal", "external"),
    [
        pytest.param([(FrontendKind.CLUSTER_IP, Route((THERE,)))], 0, 0, id="endpoints elsewhere, policy Cluster"),
        pytest.param([(FrontendKind.CLUSTER_IP, DROPPED)], 1, 0, id="internal Local, none here"),
        pytest.param([(FrontendKind.CLUSTER_IP, Route((HERE,), Scope.LOCAL))], 0, 0, id="internal Local, one here"),
        pytest.param([(FrontendKind.CLUSTER_IP, REFUSED)], 0, 0, id="none anywhere"),
        pytest.param(
            [
                (FrontendKind.CLUSTER_IP, Route((THERE,))),
                (FrontendKind.NODE_PORT, DROPPED),
                (FrontendKind.LOAD_BALANCER, DROPPED),
            ],
            0,
            1,
            id="external Local: a port counts once for all its addresses",
        ),
        pytest.param([(FrontendKind.CLUSTER_IP, DROPPED), (FrontendKind.EXTERNAL_IP, DROPPED)], 1, 1, id="both"),
    ],
)
def test_ports_without_local_endpoints(
    world: Surroundings, reader: Reader, frontends: list[tuple[FrontendKind, Route]], internal: int, external: int
) -> None:
    figures = world.figures()

    def now() -> tuple[float, float]:
        found = reader.instruments(figures.instruments())
        name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
        policies = ("internal", "external")
        first, second = (found[reader.key(name, ip_family="IPv4", traffic_policy=policy)] for policy in policies)
        return first, second

    figures.passed(a_pass(changed={WEB: service(*frontends)}))
    assert now() == (internal, external)
    figures.passed(a_pass(changed={WEB: None}))
    assert now() == (0, 0)


def test_walks_over_tracked_flows(world: Surroundings, reader: Reader) -> None:
    figures = world.figures()
    figures.conntrack_cleaned(CleaningReport(Family.IPV4, 1, 9, 4, 0, 0, 0, 0.25))
    found = reader.instruments(figures.instruments())
    assert found[reader.key("kubeproxy_conntrack_reconciler_deleted_entries_total", ip_family="IPv4")] == 4
    assert found[reader.key("kubeproxy_conntrack_reconciler_sync_duration_seconds_sum", ip_family="IPv4")] == 0.25


def test_answers_of_the_health_server(world: Surroundings, reader: Reader) -> None:
    figures = world.figures()
    world.health = {("/healthz", 200): 7, ("/livez", 503): 2, ("", 404): 5}
    found = reader.instruments(figures.instruments())
    assert found[reader.key("kubeproxy_proxy_healthz_total", code="200")] == 7
    assert found[reader.key("kubeproxy_proxy_livez_total", code="503")] == 2


ALWAYS = {
    "sync_proxy_rules_duration_seconds": "histogram",
    "sync_full_proxy_rules_duration_seconds": "histogram",
    "sync_partial_proxy_rules_duration_seconds": "histogram",
    "sync_proxy_rules_last_timestamp_seconds": "gauge",
    "sync_proxy_rules_last_queued_timestamp_seconds": "gauge",
    "network_programming_duration_seconds": "histogram",
    "sync_proxy_rules_endpoint_changes_pending": "gauge",
    "sync_proxy_rules_service_changes_pending": "gauge",
    "sync_proxy_rules_endpoint_changes_total": "counter",
    "sync_proxy_rules_service_changes_total": "counter",
    "sync_proxy_rules_no_local_endpoints_total": "gauge",
    "sync_proxy_rules_nftables_sync_failures_total": "counter",
    "sync_proxy_rules_nftables_cleanup_failures_total": "counter",
    "conntrack_reconciler_sync_duration_seconds": "histogram",
    "conntrack_reconciler_deleted_entries_total": "counter",
    "proxy_healthz_total": "counter",
    "proxy_livez_total": "counter",
}


def test_every_name_is_there_from_the_start_with_its_kind(world: Surroundings) -> None:
    lines = Exposition().text(world.figures().instruments()).decode().splitlines()
    reported = dict(
        line.removeprefix("# TYPE kubeproxy_").split() for line in lines if line.startswith("# TYPE kubeproxy_")
    )
    assert reported == ALWAYS
