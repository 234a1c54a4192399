"""With `dataplane.endpointCounters`, how often each endpoint was picked is right, whatever happens to the elements that count it."""

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import service_port
from tests.harness.repeated import Repeated
from tests.harness.worlds.process import AgentProcess
from tests.netns.test_metrics import Scraper

PODS = ("web-0", "web-1", "web-2", "far-0")
SHOP = cluster_ips(1)
NAME = "nodeagent_endpoint_connections_total"
FRONTENDS = "nodeagent_service_connections_total"
PATIENCE = 60.0
Counts = dict[str, int]


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    config = tmp_path_factory.mktemp("config") / "config.yaml"
    head = "apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\n"
    config.write_text(f"{head}dataplane: {{endpointCounters: true}}\n")
    return (*WITH_POD_CIDRS, "--config", str(config))


@pytest.fixture(scope="module")
def agent(cluster: Cluster, flags: tuple[str, ...]) -> AgentProcess:
    for pod in PODS:
        cluster.world[pod].serve(8080)
    expose(cluster, *PODS[:3])
    return cluster.start_agent(*flags)


@pytest.fixture
def scraper(cluster: Cluster, agent: AgentProcess) -> Scraper:
    return Scraper(cluster)


def expose(cluster: Cluster, *pods: str) -> None:
    cluster.expose("shop", *SHOP, pods=list(pods), ports=[service_port(80, name="http")])


def picked(scraper: Scraper) -> Counts:
    """Endpoint → how often, as the metrics have it."""
    return {
        sample.labels["endpoint"]: int(sample.value)
        for family in text_string_to_metric_families(scraper.get("/metrics"))
        for sample in family.samples
        if sample.name == NAME and sample.labels["service"] == "shop"
    }


def wait_for(scraper: Scraper, true: Callable[[Counts], bool]) -> Counts:
    deadline = time.monotonic() + PATIENCE
    while not true(found := picked(scraper)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def connect(cluster: Cluster, count: int = 30) -> Counter[str]:
    """Connections by both families; how many each pod has answered."""
    answered: Counter[str] = Counter()
    for address in SHOP:
        survey = cluster.world["caller"].ask(address, 80, count=count)
        assert not survey.failures
        answered.update(survey.names)
    return answered


def total(scraper: Scraper) -> int:
    return int(scraper.value(FRONTENDS, service="shop") or 0)


def test_endpoint_counters_add_up_to_those_of_the_service(cluster: Cluster, scraper: Scraper) -> None:
    connect(cluster)
    found = picked(scraper)
    assert len(found) == 6
    assert all(found.values())
    assert sum(found.values()) == total(scraper) == 60


def test_who_stays_keeps_its_count_and_who_comes_begins_with_none(cluster: Cluster, scraper: Scraper) -> None:
    """The first one leaves, so that another moves into its slot."""
    connect(cluster)
    before = picked(scraper)
    expose(cluster, "web-1", "web-2")
    after = wait_for(scraper, lambda found: len(found) == 4)
    assert after == {place: before[place] for place in after}
    expose(cluster, "far-0", "web-1", "web-2")
    grown = wait_for(scraper, lambda found: len(found) == 6)
    assert {place: grown[place] for place in after} == after
    assert [count for place, count in grown.items() if place not in after] == [0, 0]


def test_none_is_lost_while_endpoints_change_under_load(cluster: Cluster, scraper: Scraper) -> None:
    """`web-1` stays all the time: who has answered says how many of the connections were its own."""
    expose(cluster, "web-1")
    before = wait_for(scraper, lambda found: len(found) == 2)
    answered: Counter[str] = Counter()

    def change(number: int) -> None:
        # It is sorted in before the one that stays, or behind it: that one moves.
        expose(cluster, *(("web-1",), ("web-0", "web-1"), ("web-1", "web-2"))[number % 3])
        time.sleep(0.1)

    with Repeated(change) as changes:
        deadline = time.monotonic() + PATIENCE
        while changes.count < 9 and time.monotonic() < deadline:
            answered += connect(cluster, 50)
    expose(cluster, "web-1")
    alone = wait_for(scraper, lambda found: len(found) == 2)
    assert changes.count >= 9
    assert 0 < answered["web-1"] < answered.total()
    assert sum(alone.values()) - sum(before.values()) == answered["web-1"]


def test_a_restart_and_a_new_table_go_on_counting(
    cluster: Cluster, agent: AgentProcess, scraper: Scraper, flags: tuple[str, ...]
) -> None:
    connect(cluster)
    before = picked(scraper)
    with cluster.a_plain_table(agent, *flags):
        assert picked(scraper) == before
    assert picked(scraper) == before


def test_commands_show_endpoint_counters(cluster: Cluster, scraper: Scraper) -> None:
    expose(cluster, "web-1")
    counted = wait_for(scraper, lambda found: len(found) == 2)
    place, times = next((place, times) for place, times in counted.items() if not place.startswith("["))
    assert f"{place} ({times} times)" in cluster.call("explain", "shop")
    rows = json.loads(cluster.call("show", "backends", "-o", "json"))
    assert {row["backend"]: row["connections"] for row in rows} == counted
    shown = json.loads(scraper.get("/api/service?name=default/shop"))
    assert f"{place}, {times} times" in next(way for way in shown["ways"] if way["family"] == "IPv4")["endpoints"][
        0
    ].replace(" (this node)", "")
    top = json.loads(cluster.call("top", "--endpoints", "--once", "--every", "0.2", "-o", "json"))
    assert {row["endpoint"]: row["total"] for row in top} == counted


def test_they_are_not_there_unless_asked_for(cluster: Cluster, agent: AgentProcess, scraper: Scraper) -> None:
    def backends() -> str:
        return cluster.world.run(NODE, ["nft", "list", "map", "ip", "nodeagent", "backends"]).stdout

    assert "counter" in backends()
    before = total(scraper)
    agent.stop()
    without = cluster.start_agent(*WITH_POD_CIDRS)
    try:
        assert "counter" not in backends()
        assert picked(scraper) == {}
        assert total(scraper) == before, "what frontends counted goes on"
    finally:
        without.stop()
        printed = len(agent.lines)
        agent.restart()
        agent.wait_for_line(" ready: ", after=printed)
