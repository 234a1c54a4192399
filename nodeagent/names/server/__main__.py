"""``python -m nodeagent.names.server CONTROL USER SOCKET...``, started by the agent; CONTROL and SOCKET are open files."""

import sys

from nodeagent.names.feed.feed_messages import Settings
from nodeagent.names.server.dns_process import run_process
from nodeagent.names.upstream.node_resolvers import FixedResolvers, NodeResolvers
from nodeagent.names.upstream.resolve import Upstream
from nodeagent.names.upstream.stub_zones import StubZones
from nodeagent.names.upstream.upstream_address import Server, parse_server


def make_upstream(settings: Settings, of_node: NodeResolvers) -> Upstream:
    """Returns the resolver for names outside our zones; it never asks this process itself."""
    servers = tuple(map(parse_server, settings.upstreams))
    listening = tuple(Server(*place) for place in settings.listening)
    stubs: dict[str, list[Server]] = {}
    for zone, server in settings.stub_zones:
        stubs.setdefault(zone, []).append(parse_server(server))
    return Upstream(FixedResolvers(servers) if servers else of_node, StubZones(stubs), listening=listening)


def main() -> None:
    """Serves with the open files that the arguments name."""
    control, user, *sockets = map(int, sys.argv[1:])
    of_node = NodeResolvers()
    run_process(
        control,
        tuple(sockets),
        user,
        lambda settings: make_upstream(settings, of_node),
        lambda: of_node.search,
    )


if __name__ == "__main__":
    main()
