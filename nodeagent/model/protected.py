"""What of a node must stay reached, whatever addresses Services claim."""

from msgspec import Struct

SocketAddress = tuple[str, int]
"""An address (canonical text) and a port."""


class Protected(Struct, frozen=True):
    """ways: where the API server is reached, and a proxy on the way to it, by TCP. own: addresses of this node, canonical.

    api_ports: ports of the API server, wherever it is. names: where this node answers names, by UDP and TCP. resolvers:
    whom it asks for the names of the ways; none where those are addresses.
    """

    ways: frozenset[SocketAddress] = frozenset()
    own: frozenset[str] = frozenset()
    api_ports: frozenset[int] = frozenset()
    names: frozenset[SocketAddress] = frozenset()
    resolvers: frozenset[SocketAddress] = frozenset()
