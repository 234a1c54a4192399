"""Metrics of cluster DNS, under CoreDNS's names where they mean the same (coredns plugin/metrics, cache, forward)."""

from collections import Counter
from collections.abc import Callable, Iterator

from nodeagent.model.name_counts import SECONDS_BOUNDS, NameCounts
from nodeagent.runtime.figures.instruments import Histogram, Instrument, Observations, counter, gauge

_VIEW = ""
"""CoreDNS's label for a view, which we do not have."""


class NameFigures:
    """The metrics of the DNS process, as it last reported them; empty without a process."""

    def __init__(self, counts: Callable[[], NameCounts]) -> None:
        self._counts = counts

    def instruments(self) -> Iterator[Instrument]:
        counts = self._counts()
        if not counts.pid:
            return
        yield from _replies(counts)
        yield _durations(counts)
        upstream = counts.upstream
        zones = ("server", "zones", "view")
        for name, text, value in (
            ("coredns_cache_requests_total", "Queries for names outside the cluster", upstream.requests),
            (
                "coredns_cache_misses_total",
                "Of them those that were not in the cache",
                upstream.requests - upstream.hits,
            ),
            ("coredns_cache_served_stale_total", "Answers from the cache beyond their time", upstream.stale),
        ):
            yield _one(name, text, zones, ("", ".", _VIEW), value)
        for name, text, value in (
            ("coredns_forward_max_concurrent_rejects_total", "Turned away: too many at once", upstream.rejected),
            ("nodeagent_dns_upstream_failures_total", "Upstream queries that no server answered", upstream.failures),
            ("nodeagent_dns_upstream_hedged_total", "Upstream queries that a second server was asked", upstream.hedged),
            ("nodeagent_dns_unserved_total", "Queries of clients that are not served, refused", counts.unserved),
            ("nodeagent_dns_dropped_total", "Packets that got no reply", counts.dropped),
            ("nodeagent_dns_killed_total", "Processes that answered nothing and were killed", counts.killed),
        ):
            yield _one(name, text, (), (), value)
        down: dict[tuple[str, ...], float] = {(server,): 1.0 for server in upstream.down}
        yield gauge("nodeagent_dns_upstream_down", "1 for a resolver that does not answer", "to", values=down)
        faults: dict[tuple[str, ...], float] = {(one.server, one.kind): 1.0 for one in upstream.faults}
        yield gauge("nodeagent_dns_upstream_faulty", "1 for a fault of a resolver", "to", "fault", values=faults)
        for name, text, held in (
            ("nodeagent_dns_cache_entries", "Upstream answers in the cache", upstream.cached),
            ("nodeagent_dns_cache_bytes", "Their bytes", upstream.cached_bytes),
            ("nodeagent_dns_prepared_bytes", "Bytes of prepared answers", counts.prepared_bytes),
            ("nodeagent_dns_services", "Services with names", counts.services),
        ):
            yield gauge(name, text, values={(): held})


def _replies(counts: NameCounts) -> Iterator[Instrument]:
    requests: Counter[tuple[str, ...]] = Counter()
    responses: Counter[tuple[str, ...]] = Counter()
    for one in counts.replies:
        requests[one.server, one.zone, _VIEW, one.proto, one.family, one.kind] += one.count
        plugin = "forward" if one.zone == "." else "kubernetes"
        responses[one.server, one.zone, _VIEW, one.rcode, plugin] += one.count
    total = counter("coredns_dns_requests_total", "Queries", "server", "zone", "view", "proto", "family", "type")
    total.values.update({labels: float(count) for labels, count in requests.items()})
    yield total
    total = counter("coredns_dns_responses_total", "Replies", "server", "zone", "view", "rcode", "plugin")
    total.values.update({labels: float(count) for labels, count in responses.items()})
    yield total


def _durations(counts: NameCounts) -> Histogram:
    """Returns the durations; several sockets may have one server and zone: by UDP and by TCP."""
    name, text = "coredns_dns_request_duration_seconds", "From a query's arrival to its reply"
    histogram = Histogram(name, text, SECONDS_BOUNDS, ("server", "zone", "view"))
    for one in counts.durations:
        labels = (one.server, one.zone, _VIEW)
        before = histogram.values.get(labels, Observations([0] * len(one.counts)))
        together = [a + b for a, b in zip(before.counts, one.counts, strict=True)]
        histogram.values[labels] = Observations(together, before.total + one.total_seconds)
    return histogram


def _one(name: str, text: str, labels: tuple[str, ...], values: tuple[str, ...], value: float) -> Instrument:
    figure = counter(name, text, *labels)
    figure.set(float(value), *values)
    return figure
