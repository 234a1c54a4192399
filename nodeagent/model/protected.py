"""What of a node must stay reached, whatever addresses Services claim."""

from msgspec import Struct

Place = tuple[str, int]
"""An address (canonical text) and a TCP port."""


class Protected(Struct, frozen=True):
    """ways: where the API server is reached, and a proxy on the way to it. own: addresses of this node, canonical.

    api_ports: ports of the API server, wherever it is.
    """

    ways: frozenset[Place] = frozenset()
    own: frozenset[str] = frozenset()
    api_ports: frozenset[int] = frozenset()
