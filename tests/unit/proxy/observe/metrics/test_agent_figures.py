"""What we count beyond kube-proxy."""

from dataclasses import dataclass

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import ConnectionTable, NodeReport, PassReport, TableReport
from nodeagent.proxy.observe.metrics.agent_figures import AgentFigures, Views
from nodeagent.proxy.observe.metrics.client_figures import ClientFigures
from tests.unit.proxy.observe.metrics.conftest import Reader, Samples

WEB = ObjectKey("default", "web")


@dataclass
class Resource:
    resource: str
    lists: int
    last_received: float | None


class World:
    """What the figures look up."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.oldest: float | None = None
        self.node = NodeReport()
        self.problems: tuple[Problem, ...] = ()
        self.following: list[Resource] = []
        views = Views(
            lambda: self.oldest,
            lambda: 0,
            lambda: self.problems,
            lambda: {"Service": 3},
            lambda: self.following,
            lambda: (),
            lambda: self.node,
        )
        self.figures = AgentFigures(views, clock=lambda: self.now, version="1.2.3")

    def scrape(self, reader: Reader) -> Samples:
        return reader.instruments(self.figures.instruments())


def test_a_commit_is_a_sync_that_wrote_something(reader: Reader) -> None:
    world = World()
    for table in (TableReport(touched=3, messages=4, seconds=0.5), TableReport(seconds=9.0)):
        world.figures.passed(PassReport(1.0, 2.0, {Family.IPV4: table}))
    found = world.scrape(reader)
    assert found[reader.key("nodeagent_commit_duration_seconds_count", ip_family="IPv4")] == 1
    assert found[reader.key("nodeagent_commit_duration_seconds_sum", ip_family="IPv4")] == 0.5
    assert found[reader.key("nodeagent_commit_elements_total", ip_family="IPv4")] == 3
    assert found[reader.key("nodeagent_commit_messages_total", ip_family="IPv4")] == 4


def test_a_change_that_waits_grows_older(reader: Reader) -> None:
    world = World()
    assert world.scrape(reader)[reader.key("nodeagent_queue_age_seconds")] == 0
    world.oldest = 990.0
    assert world.scrape(reader)[reader.key("nodeagent_queue_age_seconds")] == 10


def test_foreign_changes_are_found_and_repaired_or_only_found(reader: Reader) -> None:
    world = World()
    report = PassReport(
        1.0,
        2.0,
        {Family.IPV4: TableReport(touched=9), Family.IPV6: TableReport(error="refused")},
        disturbed=frozenset({"IPv4", "IPv6"}),
    )
    world.figures.passed(report)
    found = world.scrape(reader)
    assert [
        found[reader.key("nodeagent_drift_found_total", object=what)] for what in ("IPv4", "IPv6", "interface")
    ] == [1, 1, 0]
    assert [found[reader.key("nodeagent_repairs_total", object=what)] for what in ("IPv4", "IPv6", "interface")] == [
        1,
        0,
        0,
    ]


def test_a_change_that_could_not_be_repaired_at_once_is_repaired_when_it_is(reader: Reader) -> None:
    world = World()

    def repaired() -> list[float]:
        found = world.scrape(reader)
        return [found[reader.key("nodeagent_repairs_total", object=what)] for what in ("IPv4", "interface")]

    refused, fine = {Family.IPV4: TableReport(error="refused")}, {Family.IPV4: TableReport()}
    both = frozenset({"IPv4", "interface"})
    world.figures.passed(PassReport(1.0, 2.0, refused, disturbed=both, interface_in_sync=False))
    world.figures.passed(PassReport(2.0, 3.0, fine, disturbed=frozenset({"interface"}), interface_in_sync=False))
    assert repaired() == [1, 0]
    world.figures.passed(PassReport(3.0, 4.0, fine))
    world.figures.passed(PassReport(4.0, 5.0, fine))
    assert repaired() == [1, 2]


def test_problems_by_reason(reader: Reader) -> None:
    world = World()
    world.problems = (Problem("a", "Conflict", "x"), Problem("b", "Conflict", "y"), Problem("c", "Broken", "z"))
    found = world.scrape(reader)
    assert found[reader.key("nodeagent_problems", reason="Conflict")] == 2
    assert found[reader.key("nodeagent_problems", reason="Broken")] == 1


def test_the_first_list_is_no_relist(reader: Reader) -> None:
    world = World()
    world.following = [Resource("services", 1, 995.0), Resource("nodes", 4, None)]
    found = world.scrape(reader)
    assert found[reader.key("nodeagent_relists_total", resource="services")] == 0
    assert found[reader.key("nodeagent_relists_total", resource="nodes")] == 3
    assert found[reader.key("nodeagent_watch_age_seconds", resource="services")] == 5
    assert reader.key("nodeagent_watch_age_seconds", resource="nodes") not in found


def test_requests_have_client_gos_names(reader: Reader) -> None:
    figures = ClientFigures()
    figures.requested("GET", "api:6443", "200", 0.03)
    figures.requested("GET", "api:6443", "<error>", 1.0)
    found = reader.instruments(figures.instruments())
    assert found[reader.key("rest_client_requests_total", code="<error>", host="api:6443", method="GET")] == 1
    assert found[reader.key("rest_client_request_duration_seconds_bucket", verb="GET", host="api:6443", le="0.1")] == 1
    assert found[reader.key("rest_client_request_duration_seconds_count", verb="GET", host="api:6443")] == 2


def test_the_process_tells_of_its_memory(reader: Reader) -> None:
    found = World().scrape(reader)
    assert found[reader.key("process_resident_memory_bytes")] > 1 << 20
    assert found[reader.key("nodeagent_build_info", version="1.2.3")] == 1


def test_the_connection_table(reader: Reader) -> None:
    world = World()
    assert reader.key("nodeagent_connection_table_entries") not in world.scrape(reader)
    world.node = NodeReport(ConnectionTable(entries=90, limit=100, dropped=5, clashes=2))
    found = world.scrape(reader)
    assert [found[reader.key(f"nodeagent_connection_table_{name}")] for name in ("entries", "limit")] == [90, 100]
    names = ("dropped_total", "clashes_total")
    assert [found[reader.key(f"nodeagent_connection_table_{name}")] for name in names] == [3, 2]


def test_drops_of_the_reverse_path_filter(reader: Reader) -> None:
    world = World()
    assert reader.key("nodeagent_reverse_path_drops_total") not in world.scrape(reader)
    world.node = NodeReport(reverse_path_drops=7)
    assert world.scrape(reader)[reader.key("nodeagent_reverse_path_drops_total")] == 7


def test_source_ports(reader: Reader) -> None:
    world = World()
    assert world.scrape(reader)[reader.key("nodeagent_source_ports_taken")] == 0
    world.node = NodeReport(source_ports_taken=60000)
    assert world.scrape(reader)[reader.key("nodeagent_source_ports_taken")] == 60000


def test_chains_of_others_that_stand_before_ours(reader: Reader) -> None:
    world = World()
    assert world.scrape(reader)[reader.key("nodeagent_chains_before_ours")] == 0
    world.node = NodeReport(chains_before_ours=2)
    assert world.scrape(reader)[reader.key("nodeagent_chains_before_ours")] == 2


def test_connections_that_rules_of_others_stop(reader: Reader) -> None:
    world = World()
    names = [
        reader.key(f"nodeagent_{name}")
        for name in ("connections_stopped", "long_packets_lost", "connections_followed_total")
    ]
    assert [world.scrape(reader)[name] for name in names] == [0, 0, 0]
    world.node = NodeReport(connections_stopped=2, long_packets_lost=1, times_followed=7)
    assert [world.scrape(reader)[name] for name in names] == [2, 1, 7]


def test_endpoints_that_the_node_has_no_way_to(reader: Reader) -> None:
    world = World()
    assert world.scrape(reader)[reader.key("nodeagent_endpoints_unreachable")] == 0
    world.node = NodeReport(endpoints_lost=2)
    assert world.scrape(reader)[reader.key("nodeagent_endpoints_unreachable")] == 2
