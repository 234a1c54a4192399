"""Who asks: whether they are served, and the search path of those that are known pods."""

from collections.abc import Callable, Collection, Sequence
from ipaddress import ip_network

from nodeagent.model.addresses import pack_address
from nodeagent.names.autopath import search_path
from nodeagent.names.feed.feed_messages import Served
from nodeagent.names.served_clients import is_allowed, served_ranges
from nodeagent.wire.dns.domain_names import BadName

MOST_KNOWN = 65_536
"""Clients remembered to be served. When there are more, which forged addresses may be, all are looked at again."""


class Clients:
    """listening: our own addresses, from which the node's programs ask us. Until `serve` is called all private
    addresses are served."""

    def __init__(self, listening: Collection[str] = ()) -> None:
        self._listening = frozenset(listening)
        self.known: set[bytes] = set()
        """Clients that are served, as bytes on the wire: those of the latest queries."""
        self.serve(Served(served_ranges((), ())))

    def serve(self, served: Served) -> None:
        """These are served from now on."""
        self._ranges = tuple(map(ip_network, served.ranges))
        self._addresses = self._listening.union(served.addresses)
        self.known.clear()

    def are_served(self, client: str) -> bool:
        """Whether the client at this address gets answers."""
        if not is_allowed(client, self._ranges, self._addresses):
            return False
        if len(self.known) >= MOST_KNOWN:
            self.known.clear()
        self.known.add(pack_address(client.partition("%")[0]))
        return True


class SearchPaths:
    """Of pods. zone: the cluster's. of_node: the node's search domains, which kubelet hands on to its pods."""

    def __init__(self, zone: str, of_node: Callable[[], Sequence[str]]) -> None:
        self._zone = zone
        self._of_node = of_node
        self._known: dict[tuple[bytes, tuple[str, ...]], tuple[bytes, ...]] = {}

    def of(self, namespace: bytes) -> tuple[bytes, ...]:
        """The path of the pods of a namespace, which is known to be a label; empty if its names are too long."""
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
