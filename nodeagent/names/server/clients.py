"""The clients: whether they are served, and the search paths of known pods."""

from collections.abc import Callable, Collection, Sequence
from ipaddress import ip_network

from nodeagent.model.addresses import pack_address
from nodeagent.names.autopath import search_path
from nodeagent.names.feed.feed_messages import Served
from nodeagent.names.served_clients import is_allowed, served_ranges
from nodeagent.wire.dns.domain_names import BadName

MOST_KNOWN = 65_536
"""How many served clients are remembered. If there are more (addresses may be forged), all are checked again."""


class Clients:
    """Decides which clients are served. listening: our own addresses, from which the node's programs ask. Until `serve`
    is called, all private addresses are served."""

    def __init__(self, listening: Collection[str] = ()) -> None:
        self._listening = frozenset(listening)
        self.known: set[bytes] = set()
        """Clients of the latest queries that are served, as address bytes."""
        self.serve(Served(served_ranges((), ())))

    def serve(self, served: Served) -> None:
        """Sets who is served."""
        self._ranges = tuple(map(ip_network, served.ranges))
        self._addresses = self._listening.union(served.addresses)
        self.known.clear()

    def are_served(self, client: str) -> bool:
        """Returns whether the client at this address is served, and remembers it if so."""
        if not is_allowed(client, self._ranges, self._addresses):
            return False
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known.add(pack_address(client.partition("%")[0]))
        return True


class SearchPaths:
    """Search paths of pods. zone: the cluster's. of_node: returns the node's search domains, which its pods inherit."""

    def __init__(self, zone: str, of_node: Callable[[], Sequence[str]]) -> None:
        self._zone = zone
        self._of_node = of_node
        self._known: dict[tuple[bytes, tuple[str, ...]], tuple[bytes, ...]] = {}

    def of(self, namespace: bytes) -> tuple[bytes, ...]:
        """Returns the search path of the pods of a namespace, which is a valid label; empty if its names are too long."""
        key = (namespace, tuple(self._of_node()))
        path = self._known.get(key)
        if path is None:
            try:
                path = search_path(namespace.decode(), self._zone, key[1])
            except BadName:
                path = ()
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = path
        return path
