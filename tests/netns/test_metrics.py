"""What a node's metrics server tells of its agent: real connections, real foreign changes."""

import time
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import service_port
from tests.harness.worlds.process import AgentProcess

SHOP, QUIET = cluster_ips(1), cluster_ips(2)
PLACE = "http://127.0.0.1:10249"
PATIENCE = 60.0
NODE_PORT = 30080


class Scraper:
    """Asks a node's metrics server on the node itself."""

    def __init__(self, cluster: Cluster) -> None:
        self._world = cluster.world

    def get(self, path: str, *options: str) -> str:
        return self._world.run(NODE, ["curl", "--silent", "--show-error", *options, f"{PLACE}{path}"]).stdout

    def value(self, name: str, **labels: str) -> float | None:
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return sample.value
        return None

    def wait_for(self, name: str, condition: Callable[[float], bool], **labels: str) -> float:
        deadline = time.monotonic() + PATIENCE
        while True:
            value = self.value(name, **labels)
            if value is not None and condition(value):
                return value
            assert time.monotonic() < deadline, f"{name}{labels} stays {value}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    cluster.world["web-0"].serve(8080)
    cluster.expose("shop", *SHOP, pods=["web-0"], ports=[service_port(80, name="http", node_port=NODE_PORT)])
    cluster.expose("quiet", *QUIET, pods=["web-0"])
    return cluster.start_agent(*WITH_POD_CIDRS, "--table-ownership", "plain")


@pytest.fixture
def scraper(cluster: Cluster, agent: AgentProcess) -> Scraper:
    return Scraper(cluster)


def test_connections_are_counted_by_service(cluster: Cluster, scraper: Scraper) -> None:
    name = "nodeagent_service_connections_total"
    before = [scraper.value(name, service=service) or 0.0 for service in ("shop", "quiet")]

    assert not cluster.world["caller"].ask(SHOP[0], 80, count=7).failures
    assert not cluster.world["caller"].ask(SHOP[1], 80, count=5).failures
    assert not cluster.world["outside"].ask(cluster.world[NODE].address(), NODE_PORT, count=3).failures

    after = [scraper.value(name, service=service) or 0.0 for service in ("shop", "quiet")]
    assert [after[0] - before[0], after[1] - before[1]] == [15, 0]


def test_a_foreign_change_is_counted_when_it_is_found_and_when_it_is_repaired(
    cluster: Cluster, scraper: Scraper
) -> None:
    names = ("nodeagent_drift_found_total", "nodeagent_repairs_total")
    before = [scraper.value(name, object="IPv4") or 0.0 for name in names]
    cluster.world.nft(NODE, "flush ruleset")
    for name, count in zip(names, before, strict=True):
        assert scraper.wait_for(name, count.__lt__, object="IPv4") == count + 1


def test_a_sysctl_that_somebody_changes_is_set_again_and_the_third_time_a_problem(
    cluster: Cluster, agent: AgentProcess, scraper: Scraper
) -> None:
    name, printed = "nodeagent_audit_drift_total", len(agent.lines)
    assert scraper.value(name, object="sysctl", kind="value") == 0
    for count in range(1, 4):
        assert scraper.value("nodeagent_problems", reason="ChangedRepeatedly") is None
        cluster.world.run(NODE, ["sysctl", "-qw", "net.ipv4.ip_forward=0"])
        scraper.wait_for(name, float(count).__eq__, object="sysctl", kind="value")
        assert cluster.world.run(NODE, ["sysctl", "-n", "net.ipv4.ip_forward"]).stdout.strip() == "1"
    scraper.wait_for("nodeagent_problems", lambda value: value == 1, reason="ChangedRepeatedly")
    agent.wait_for_line("drift of sysctl .value.: net.ipv4.ip_forward was 0, not 1; found by the audit", after=printed)
    agent.wait_for_line("problem: sysctls: ChangedRepeatedly: value: ", after=printed)


def test_a_change_of_endpoints_is_counted_and_leaves_nothing_waiting(cluster: Cluster, scraper: Scraper) -> None:
    name = "kubeproxy_sync_proxy_rules_endpoint_changes_total"
    before = scraper.value(name) or 0.0
    cluster.expose("quiet", *QUIET, pods=["web-0", "web-1"])
    scraper.wait_for(name, lambda value: value > before)
    scraper.wait_for("kubeproxy_sync_proxy_rules_endpoint_changes_pending", lambda value: value == 0)
    scraper.wait_for("kubeproxy_sync_partial_proxy_rules_duration_seconds_count", lambda value: value > 0)


def test_the_other_pages_of_kube_proxy_are_answered(scraper: Scraper) -> None:
    assert scraper.get("/proxyMode") == "nftables"
    assert scraper.get("/readyz") == "ok\n"
    assert '"tableOwnership": "plain"' in scraper.get("/configz")
    assert "Ready: yes" in scraper.get("/statusz")


@pytest.mark.parametrize(
    ("options", "path", "status"), [([], "/nothing", 404), (["-XPOST"], "/metrics", 405), (["-I"], "/metrics", 200)]
)
def test_only_what_is_there_can_only_be_read(scraper: Scraper, options: list[str], path: str, status: int) -> None:
    assert scraper.get(path, *options, "-o", "/dev/null", "-w", "%{http_code}") == str(status)


def test_nobody_outside_the_node_can_ask(cluster: Cluster, agent: AgentProcess) -> None:
    for client in ("caller", "outside"):
        asked = cluster.world[client].ask(cluster.world[NODE].address(), 10249, timeout=2.0)
        assert len(asked.failures) == 1
