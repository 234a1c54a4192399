"""The line of counts for `systemctl status`."""

from collections.abc import Mapping

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.observe.status_line import StatusLine

WEB = ObjectKey("default", "web")
SHOP = ObjectKey("default", "shop")
WORKS = {Family.IPV4: TableReport()}


def state(key: ObjectKey, *backends: Backend, cluster_wide: tuple[Backend, ...] = ()) -> ServiceState:
    """A service with a ClusterIP and a node port, both with these backends."""
    frontends = tuple(
        Frontend(
            kind=kind,
            family=Family.IPV4,
            address=address,
            protocol=Protocol.TCP,
            port=80,
            service_port=ServicePortName(key, "http", Protocol.TCP),
            route=Route(backends),
            short_circuit=Route(cluster_wide) if cluster_wide else None,
        )
        for kind, address in ((FrontendKind.CLUSTER_IP, "10.96.0.1"), (FrontendKind.NODE_PORT, None))
    )
    return ServiceState(key, frontends=frontends)


def report(
    changed: Mapping[ObjectKey, ServiceState | None], services: int, families: Mapping[Family, TableReport] = WORKS
) -> PassReport:
    return PassReport(0.0, 0.0, families, changed, services)


def test_an_endpoint_counts_once_however_many_frontends_lead_to_it() -> None:
    line = StatusLine("node-a")
    shown = line.after_pass(report({WEB: state(WEB, Backend("10.244.0.1", 80), Backend("10.244.0.2", 80))}, 1), 0)
    assert shown == "1 service, 2 endpoints on node-a (IPv4)"


def test_endpoints_that_only_the_node_itself_uses_count_too() -> None:
    line = StatusLine("node-a")
    here, there = Backend("10.244.0.1", 80, local=True), Backend("10.244.1.1", 80)
    assert "2 endpoints" in line.after_pass(report({WEB: state(WEB, here, cluster_wide=(here, there))}, 1), 0)


def test_counts_follow_the_passes() -> None:
    line = StatusLine("node-a")
    one, two = Backend("10.244.0.1", 80), Backend("10.244.0.2", 80)
    line.after_pass(report({WEB: state(WEB, one, two), SHOP: state(SHOP, one)}, 2), 0)
    assert "2 services, 2 endpoints" in line.after_pass(report({WEB: state(WEB, two)}, 2), 0)
    assert "1 service, 1 endpoint " in line.after_pass(report({SHOP: None}, 1), 0)
    assert "0 services, 0 endpoints" in line.after_pass(report({WEB: None}, 0), 0)


def test_failing_families_and_problems_are_shown() -> None:
    families = {Family.IPV4: TableReport(), Family.IPV6: TableReport(error="no")}
    shown = StatusLine("node-a").after_pass(report({}, 0, families), 2)
    assert shown == "0 services, 0 endpoints on node-a (IPv4); programming IPv6 fails, retrying; 2 problems"


def test_the_line_says_that_nothing_is_programmed() -> None:
    shown = StatusLine("node-a").after_pass(report({}, 0, {Family.IPV4: TableReport(error="no")}), 1)
    assert (
        shown == "0 services, 0 endpoints on node-a (nothing programmed); programming IPv4 fails, retrying; 1 problem"
    )


def test_problems_that_come_between_passes_are_counted() -> None:
    line = StatusLine("node-a")
    line.after_pass(report({WEB: state(WEB, Backend("10.244.0.1", 80))}, 1), 0)
    assert line.counted(3) == "1 service, 1 endpoint on node-a (IPv4); 3 problems"
    assert line.counted(0) == "1 service, 1 endpoint on node-a (IPv4)"
