"""Counters of connections are right to the last one, whatever happens to the elements that have them."""

import time

import pytest

from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.objects import service_port
from tests.harness.repeated import Repeated
from tests.harness.worlds.process import AgentProcess
from tests.netns.test_metrics import Scraper

PODS = ("web-0", "web-1", "web-2", "far-0")
SHOP = cluster_ips(1)
NODE_PORT = 30080
NAME = "nodeagent_service_connections_total"
PATIENCE = 60.0


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    for pod in PODS:
        cluster.world[pod].serve(8080)
    expose(cluster, 2)
    return cluster.start_agent(*WITH_POD_CIDRS)


def expose(cluster: Cluster, endpoints: int) -> None:
    ports = [service_port(80, name="http", node_port=NODE_PORT)]
    cluster.expose("shop", *SHOP, pods=PODS[:endpoints], ports=ports)


def class_in_kernel(cluster: Cluster) -> str:
    """What the kernel has as the class of the service's IPv4 frontend."""
    listing = cluster.world.run(NODE, ["nft", "list", "map", "ip", "nodeagent", "frontends"]).stdout
    return next(line.rpartition(":")[2].strip(" },") for line in listing.splitlines() if SHOP[0] + " " in line)


def wait_for_endpoints(cluster: Cluster, endpoints: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while class_in_kernel(cluster) != str(endpoints):
        assert time.monotonic() < deadline, class_in_kernel(cluster)
        time.sleep(0.02)


def connect(cluster: Cluster, count: int = 10) -> int:
    """Connections by both families and the node port; how many there were."""
    world = cluster.world
    for client, address, port in (
        ("caller", SHOP[0], 80),
        ("caller", SHOP[1], 80),
        ("outside", world[NODE].address(), NODE_PORT),
    ):
        assert not world[client].ask(address, port, count=count).failures
    return 3 * count


@pytest.fixture
def scraper(cluster: Cluster, agent: AgentProcess) -> Scraper:
    return Scraper(cluster)


def total(scraper: Scraper) -> int:
    return int(scraper.value(NAME, service="shop") or 0)


def test_another_number_of_endpoints_rebuilds_the_element_and_keeps_its_count(
    cluster: Cluster, scraper: Scraper
) -> None:
    before = total(scraper) + connect(cluster)
    for endpoints in (3, 1, 4, 2):
        expose(cluster, endpoints)
        wait_for_endpoints(cluster, endpoints)
        assert total(scraper) == before
    assert total(scraper) + connect(cluster) == total(scraper)


def test_none_is_lost_while_endpoints_change_under_load(cluster: Cluster, scraper: Scraper) -> None:
    before = total(scraper)
    made = 0

    def change(number: int) -> None:
        expose(cluster, 2 + number % 2)
        wait_for_endpoints(cluster, 2 + number % 2)

    with Repeated(change) as changes:
        deadline = time.monotonic() + PATIENCE
        while changes.count < 6 and time.monotonic() < deadline:
            made += connect(cluster, 100)
    print(f"\n{made} connections during {changes.count} changes")
    assert changes.count >= 6
    assert total(scraper) == before + made


def test_a_restart_goes_on_counting(cluster: Cluster, agent: AgentProcess, scraper: Scraper) -> None:
    before = total(scraper) + connect(cluster)
    agent.stop()
    while_away = connect(cluster)
    printed = len(agent.lines)
    agent.restart()
    agent.wait_for_line(" ready: ", after=printed)
    assert total(scraper) == before + while_away


def test_a_new_table_in_place_of_the_old_one_goes_on_counting(
    cluster: Cluster, agent: AgentProcess, scraper: Scraper
) -> None:
    before = total(scraper) + connect(cluster)
    with cluster.a_plain_table(agent, *WITH_POD_CIDRS):
        assert total(scraper) == before
    assert total(scraper) == before


def test_a_recreated_service_counts_from_zero(cluster: Cluster, scraper: Scraper) -> None:
    other = cluster.expose("other", *cluster_ips(7), pods=PODS[:1])
    scraper.wait_for(NAME, lambda value: value == 0, service="other")
    assert not cluster.world["caller"].ask(cluster_ips(7)[0], 80, count=4).failures
    assert scraper.value(NAME, service="other") == 4
    cluster.withdraw(other)
    deadline = time.monotonic() + PATIENCE
    while scraper.value(NAME, service="other") is not None:
        assert time.monotonic() < deadline
    cluster.expose("other", *cluster_ips(7), pods=PODS[:1])
    assert scraper.wait_for(NAME, lambda _: True, service="other") == 0
