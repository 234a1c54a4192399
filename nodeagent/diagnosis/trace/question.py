"""The connection of a question, as typed by the user: `SRC [->] DST:PORT[/proto]`. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.model.addresses import LAST_PORT, Family, Protocol, endpoint_text, family_of, parse_address

ARROWS = frozenset({"->", "→", "to"})
_HOW = "write SRC -> DST:PORT/PROTOCOL, like 10.244.1.5 -> 10.96.0.10:80/tcp or fd00::5 -> [fd00:10::1]:53/udp"
_TWO = 2


class Question(Struct, frozen=True):
    """A new connection: canonical addresses of one family."""

    source: str
    destination: str
    port: int
    protocol: Protocol = Protocol.TCP

    @property
    def family(self) -> Family:
        """The family of both addresses."""
        return family_of(self.destination)

    def __str__(self) -> str:
        return f"{self.source} -> {endpoint_text(self.destination, self.port)}/{self.protocol.name}"


def parse_question(words: Sequence[str]) -> Question:
    """Returns the question in the words of a command line. Raises ValueError with one line."""
    parts = [part for word in words for part in word.replace("->", " -> ").split() if part not in ARROWS]
    if len(parts) != _TWO:
        raise ValueError(f"{' '.join(words) or 'nothing'!r} is not a connection: {_HOW}")
    source = parse_address(parts[0].strip("[]"))
    place, _, named = parts[1].partition("/")
    host, colon, port = place.rpartition(":")
    destination = parse_address(host.strip("[]"))
    if source is None:
        raise ValueError(f"{parts[0]!r} is not an address: {_HOW}")
    if destination is None or not colon:
        raise ValueError(f"{parts[1]!r} is not an address and a port: {_HOW}")
    if ":" in host and not host.startswith("["):
        if not (port.isascii() and port.isdigit()):
            raise ValueError(f"{parts[1]!r} is not an address and a port: {_HOW}")
        meant = f"[{destination}]:{port}" + (f"/{named}" if named else "")
        raise ValueError(f"{parts[1]!r} has no brackets, so where its port begins is unclear: write {meant}")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= LAST_PORT):
        raise ValueError(f"{port!r} is not a port: {_HOW}")
    protocol = Protocol.__members__.get((named or "tcp").upper())
    if protocol is None:
        raise ValueError(f"{named!r} is not a protocol: tcp, udp or sctp")
    if family_of(source) is not family_of(destination):
        raise ValueError(f"{source} and {destination} are of different families")
    return Question(source, destination, int(port), protocol)
