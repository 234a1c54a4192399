"""What cluster DNS counts, in a scrape."""

from nodeagent.model.name_counts import SECONDS_BOUNDS, Durations, NameCounts, Replies, UpstreamCounts, UpstreamFault
from nodeagent.proxy.observe.metrics.name_figures import NameFigures
from tests.unit.proxy.observe.metrics.conftest import Reader

SERVER = "dns://169.254.20.10:53"
BUCKETS = (0.0,) * (len(SECONDS_BOUNDS) - 1)
COUNTS = NameCounts(
    pid=1,
    services=7,
    replies=(
        Replies(SERVER, "udp", "1", "cluster.local.", "A", "NOERROR", 5),
        Replies(SERVER, "udp", "1", "cluster.local.", "A", "NXDOMAIN", 2),
        Replies(SERVER, "tcp", "1", "cluster.local.", "A", "NOERROR", 1),
        Replies(SERVER, "udp", "1", ".", "AAAA", "SERVFAIL", 3),
    ),
    durations=(
        Durations(SERVER, "cluster.local.", (6, 1, *map(int, BUCKETS)), 0.5),
        Durations(SERVER, "cluster.local.", (1, 0, *map(int, BUCKETS)), 0.25),
    ),
    upstream=UpstreamCounts(
        requests=10,
        hits=4,
        rejected=1,
        down=("192.0.2.53:53",),
        faults=(UpstreamFault("192.0.2.53:53", "slow", "2 s"),),
    ),
    unserved=9,
)


def test_replies_are_requests_by_type_and_responses_by_rcode(reader: Reader) -> None:
    found = reader.instruments(NameFigures(lambda: COUNTS).instruments())
    about = {"server": SERVER, "view": ""}
    ours = {**about, "zone": "cluster.local."}
    key = reader.key
    assert found[key("coredns_dns_requests_total", **ours, proto="udp", family="1", type="A")] == 7
    assert found[key("coredns_dns_requests_total", **ours, proto="tcp", family="1", type="A")] == 1
    assert found[key("coredns_dns_responses_total", **ours, rcode="NOERROR", plugin="kubernetes")] == 6
    theirs = {**about, "zone": "."}
    assert found[key("coredns_dns_responses_total", **theirs, rcode="SERVFAIL", plugin="forward")] == 3
    assert found[key("coredns_dns_request_duration_seconds_count", **ours)] == 8
    assert found[key("coredns_dns_request_duration_seconds_sum", **ours)] == 0.75
    assert found[key("coredns_dns_request_duration_seconds_bucket", **ours, le="0.00025")] == 7
    assert found[key("coredns_cache_misses_total", server="", zones=".", view="")] == 6
    assert found[key("nodeagent_dns_upstream_down", to="192.0.2.53:53")] == 1
    assert found[key("nodeagent_dns_upstream_faulty", to="192.0.2.53:53", fault="slow")] == 1
    assert found[key("nodeagent_dns_unserved_total")] == 9
    assert found[key("nodeagent_dns_services")] == 7


def test_without_a_process_there_is_nothing(reader: Reader) -> None:
    assert not [name for name, _ in reader.instruments(NameFigures(NameCounts).instruments()) if "dns" in name]
