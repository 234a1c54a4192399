"""Finds the servers for a name: those of the longest stub zone above it. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from nodeagent.names.upstream.upstream_address import Server
from nodeagent.wire.dns.domain_names import from_text, to_text


class StubZones:
    """The zones that have servers of their own.
    zones: zone as text → its servers. Raises ValueError for an invalid zone, or one without a server."""

    def __init__(self, zones: Mapping[str, Sequence[Server]]) -> None:
        self._zones = {from_text(zone).lower(): tuple(servers) for zone, servers in zones.items()}
        for zone, servers in zones.items():
            if not servers:
                raise ValueError(f"zone {zone} has no server")

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers of all zones, each once."""
        return tuple(dict.fromkeys(server for servers in self._zones.values() for server in servers))

    def zone_of(self, server: Server) -> bytes | None:
        """Returns a zone of this server, lower-case and in wire form; None if it is the server of no zone."""
        return next((zone for zone, servers in self._zones.items() if server in servers), None)

    @property
    def zones(self) -> Iterator[tuple[str, tuple[Server, ...]]]:
        """Each zone as text, with its servers."""
        return ((to_text(zone), servers) for zone, servers in self._zones.items())

    def servers_for(self, name: bytes) -> tuple[Server, ...] | None:
        """Returns the servers for a name (lower-case, in wire form); None if no stub zone has it."""
        if not self._zones:
            return None
        return next((self._zones[suffix] for suffix in suffixes(name) if suffix in self._zones), None)


def suffixes(name: bytes) -> Iterator[bytes]:
    """Yields `name` and every name above it, up to the root."""
    at = 0
    while name[at]:
        yield name[at:]
        at += name[at] + 1
    yield b"\0"
