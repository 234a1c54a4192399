"""What connection tracking knows of a client's connections to one address (pure)."""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.proxy.dataplane.source_ports import PortShortage

IN_FLIGHT_SECONDS = 2
"""An answer that is not there after so many whole seconds is not on its way any more."""

Place = tuple[str, int]
"""An endpoint's address and port."""


class TrackedFlow(Struct, frozen=True):
    """A flow of UDP that is tracked: its client, and who its packets go to."""

    source: str
    port: int
    endpoint: Place


class Attempt(Struct, frozen=True):
    """A connection of TCP that is tracked. answered: its last packet, by anything. ago: seconds since that."""

    answered: bool
    ago: int


class Silence(Struct, frozen=True):
    """An endpoint, or one that was, that does not answer the client's last connection to it. ago: seconds since its last packet."""

    endpoint: Place
    ago: int


class Connections(Struct, frozen=True):
    """The connection table: entries, and how many there may be (0: not known); the flows that the question is about, the
    endpoints that were silent, and those towards which source ports run out."""

    count: int = 0
    most: int = 0
    flows: tuple[TrackedFlow, ...] = ()
    silent: tuple[Silence, ...] = ()
    crowds: tuple[PortShortage, ...] = ()

    @property
    def full(self) -> bool:
        """Whether a new connection finds no place."""
        return 0 < self.most <= self.count


def silences(attempts: Sequence[tuple[Place, Attempt]]) -> tuple[Silence, ...]:
    """The endpoints whose latest connection has waited for an answer long enough."""
    answered: dict[Place, int] = {}
    waiting: dict[Place, int] = {}
    for place, attempt in attempts:
        ages = answered if attempt.answered else waiting
        ages[place] = min(attempt.ago, ages.get(place, attempt.ago))
    return tuple(
        Silence(place, ago)
        for place, ago in sorted(waiting.items())
        if ago >= IN_FLIGHT_SECONDS and not (place in answered and answered[place] <= ago)
    )
