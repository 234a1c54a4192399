"""The upstream side from what people configure."""

from collections.abc import Collection, Mapping, Sequence

from nodeagent.dns.upstream.node_resolvers import FixedResolvers, NodeResolvers
from nodeagent.dns.upstream.resolve import Upstream
from nodeagent.dns.upstream.server import Server, parse_server
from nodeagent.dns.upstream.stub_zones import StubZones


def build_upstream(
    upstreams: Sequence[str],
    stub_zones: Mapping[str, Sequence[str]],
    *,
    listening: Collection[Server],
    node_addresses: Collection[str] = (),
) -> Upstream:
    """upstreams: `ADDR[:PORT]` each, none for the node's own resolvers. stub_zones: zone → servers, written so.

    listening, node_addresses: what we are ourselves and never ask. Raises ValueError, saying what is wrong.
    """
    return Upstream(
        FixedResolvers(tuple(map(parse_server, upstreams))) if upstreams else NodeResolvers(),
        StubZones({zone: tuple(map(parse_server, servers)) for zone, servers in stub_zones.items()}),
        listening=listening,
        node_addresses=node_addresses,
    )
