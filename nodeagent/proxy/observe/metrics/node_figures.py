"""What the agent last saw of its node, for Prometheus. A metric has no value before it was read."""

from collections.abc import Iterator

from nodeagent.model.reports import ConnectionTable, NodeReport
from nodeagent.runtime.figures.instruments import Instrument, counter, gauge


def node_figures(seen: NodeReport) -> Iterator[Instrument]:
    """Yields all of them."""
    yield from _of_connection_table(seen.connection_table)
    reverse_path = counter("nodeagent_reverse_path_drops_total", "Packets that the reverse path filter dropped")
    if seen.reverse_path_drops is not None:
        reverse_path.set(seen.reverse_path_drops)
    yield reverse_path
    ports = "Source ports that are taken towards one endpoint, where that is more than 9 of 10; else 0"
    yield gauge("nodeagent_source_ports_taken", ports, values={(): seen.source_ports_taken})
    early = "Chains of other programs that translate connections before the agent's"
    yield gauge("nodeagent_chains_before_ours", early, values={(): seen.chains_before_ours})
    lost = "Endpoints, of those looked at, that this node has no route to, or that no host answers for"
    yield gauge("nodeagent_endpoints_unreachable", lost, values={(): seen.endpoints_lost})
    stopped = "Kinds of clients, in each family, whose connections to Services rules of other programs stop"
    yield gauge("nodeagent_connections_stopped", stopped, values={(): seen.connections_stopped})
    times = "Times that connections were followed through the rules of other programs"
    followed = counter("nodeagent_connections_followed_total", times)
    followed.set(seen.times_followed)
    yield followed
    long_lost = "Kinds of clients, in each family, on whose connections long packets are lost"
    yield gauge("nodeagent_long_packets_lost", long_lost, values={(): seen.long_packets_lost})


def _of_connection_table(table: ConnectionTable | None) -> Iterator[Instrument]:
    entries = gauge("nodeagent_connection_table_entries", "Connections that the kernel of this node tracks")
    limit = gauge("nodeagent_connection_table_limit", "How many it can track; new ones beyond are dropped")
    dropped = counter("nodeagent_connection_table_dropped_total", "New connections that found the table full")
    clashes = counter(
        "nodeagent_connection_table_clashes_total", "Packets dropped because their connection was there already"
    )
    if table is not None:
        entries.set(table.entries)
        limit.set(table.limit)
        dropped.set(table.dropped_when_full)
        clashes.set(table.clashes)
    yield from (entries, limit, dropped, clashes)
