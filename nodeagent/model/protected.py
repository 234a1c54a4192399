"""What a node must be able to reach, whatever addresses Services claim."""

from msgspec import Struct

SocketAddress = tuple[str, int]
"""An address (canonical text) and a port."""


class Protected(Struct, frozen=True):
    """The addresses and ports that no Service may capture.

    ways: where the API server, or a proxy to it, is reached by TCP. own: addresses of this node, canonical. api_ports: ports of
    the API server, at any address. names: where this node answers DNS queries, by UDP and TCP. resolvers: the name servers that
    resolve the names in ways; empty if these are addresses.
    """

    ways: frozenset[SocketAddress] = frozenset()
    own: frozenset[str] = frozenset()
    api_ports: frozenset[int] = frozenset()
    names: frozenset[SocketAddress] = frozenset()
    resolvers: frozenset[SocketAddress] = frozenset()
