"""Chooses one of several API servers. Pure: no I/O, and chance is injected.

A client keeps to one server, so that it has one place to watch for signs of life. At first that is its home server, drawn at
random, so that the clients of a cluster are spread over the servers; when a server fails, the next one in the client's own order is
used instead. A client of another server checks periodically whether its home server is ready, and returns: that restores the balance.
"""

from collections.abc import Callable, Container, Sequence

from msgspec import Struct


class Server(Struct, frozen=True):
    """One API server. url: without a trailing slash, possibly with a path. proxy: URL of an HTTP proxy, None for a direct
    connection."""

    url: str
    proxy: str | None = None


class Failover(Struct, frozen=True):
    """Timeouts in seconds that apply if there is another server. connect: for TCP and TLS. answer: until an answer
    starts, and between its pieces. home: the approximate pause between checks whether the home server is ready."""

    connect: float = 3.0
    answer: float = 10.0
    home: float = 300.0


class Servers:
    """The servers of one client, in an order of its own. `random` returns numbers in [0, 1)."""

    def __init__(self, servers: Sequence[Server], random: Callable[[], float]) -> None:
        self._order = sorted(dict.fromkeys(servers), key=lambda _: random())
        self.home = self.current = self._order[0]

    @property
    def are_several(self) -> bool:
        return len(self._order) > 1

    def next_to_try(self, asked: Container[Server]) -> Server | None:
        """Returns the first server that has not been asked yet, beginning with the one in use; None if all have been asked."""
        start = self._order.index(self.current)
        return next((server for server in self._order[start:] + self._order[:start] if server not in asked), None)

    def use(self, server: Server) -> bool:
        """Uses this server from now on; returns whether that is a change."""
        changes, self.current = server != self.current, server
        return changes

    def leave(self, server: Server) -> bool:
        """Uses the next server if this one is in use; returns whether that is a change."""
        if server != self.current:
            return False
        following = (self._order.index(server) + 1) % len(self._order)
        return self.use(self._order[following])
