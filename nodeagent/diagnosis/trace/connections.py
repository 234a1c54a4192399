"""What connection tracking knows of a client's connections to one address (pure)."""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.proxy.dataplane.source_ports import PortShortage

IN_FLIGHT_SECONDS = 2
"""After this many whole seconds, an answer that has not arrived is no longer on its way."""

Place = tuple[str, int]
"""Address and port of an endpoint."""


class TrackedFlow(Struct, frozen=True):
    """A tracked UDP flow: its client, and the endpoint of its packets."""

    source: str
    port: int
    endpoint: Place


class Attempt(Struct, frozen=True):
    """A tracked TCP connection. answered: the peer has answered its last packet. ago: seconds since that packet."""

    answered: bool
    ago: int


class SilentEndpoint(Struct, frozen=True):
    """A present or former endpoint that does not answer the client's last connection to it. ago: seconds since its last
    packet."""

    endpoint: Place
    ago: int


class Connections(Struct, frozen=True):
    """The connection table: number of entries, and their limit (0: unknown); the flows of the question, the endpoints
    that did not answer, and those towards which source ports run out."""

    count: int = 0
    most: int = 0
    flows: tuple[TrackedFlow, ...] = ()
    silent: tuple[SilentEndpoint, ...] = ()
    crowds: tuple[PortShortage, ...] = ()

    @property
    def full(self) -> bool:
        """Whether the table has no room for a new connection."""
        return 0 < self.most <= self.count


def silent_endpoints(attempts: Sequence[tuple[Place, Attempt]]) -> tuple[SilentEndpoint, ...]:
    """Returns the endpoints whose latest connection has waited for an answer for IN_FLIGHT_SECONDS."""
    answered: dict[Place, int] = {}
    waiting: dict[Place, int] = {}
    for place, attempt in attempts:
        ages = answered if attempt.answered else waiting
        ages[place] = min(attempt.ago, ages.get(place, attempt.ago))
    return tuple(
        SilentEndpoint(place, ago)
        for place, ago in sorted(waiting.items())
        if ago >= IN_FLIGHT_SECONDS and not (place in answered and answered[place] <= ago)
    )
