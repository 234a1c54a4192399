"""Packets as the kernel was seen to treat them, compared with what was predicted (pure)."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeagent.diagnosis.trace.journey import End, Journey
from nodeagent.diagnosis.trace.own_table import OwnTable
from nodeagent.proxy.dataplane.program import schema
from nodeagent.wire.netlink.nf_tables.tracing import TraceEvent

OWN_HELPER = f"{schema.TABLE}-trace"
"""How the tables begin that turn tracing on."""


class Followed(Struct, frozen=True):
    """One packet. steps: our rules that applied, by chain and handle. destination: where it was last seen to go.

    agrees: whether it went as predicted; None: it belongs to a connection that is tracked already, so rules of NAT were
    not asked again.
    """

    steps: tuple[tuple[str, int], ...]
    destination: str
    dropped_by: str
    agrees: bool | None


def packets_of(events: Iterable[TraceEvent]) -> list[tuple[TraceEvent, ...]]:
    """Events by packet, in the order in which packets came.

    A packet that a bridge brought to `prerouting` and then hands on to the routing goes on under another id, in which the kernel
    mixes the interface that it came by (trace_fill_id). It is known by its source port.
    """
    found: dict[int, list[TraceEvent]] = {}
    begun: dict[int, int] = {}
    known_as: dict[int, int] = {}
    for event in events:
        if event.table.startswith(OWN_HELPER):
            begun[event.source_port] = known_as[event.packet] = event.packet
            continue
        packet = known_as.setdefault(event.packet, begun.get(event.source_port, event.packet))
        found.setdefault(packet, []).append(event)
    return [tuple(one) for one in found.values()]


def judge(events: Sequence[TraceEvent], foretold: Iterable[Journey], own: OwnTable | None) -> Followed:
    """One packet's events beside what was predicted."""
    steps = tuple((event.chain, event.rule) for event in events if event.table == schema.TABLE and event.rule)
    destination = next((event.destination for event in reversed(events) if event.destination), "")
    stopped = next((event for event in events if event.stops), None)
    expected = [(_steps(journey, own), journey) for journey in foretold]
    if not steps and all(wanted for wanted, _ in expected):
        return Followed(steps, destination, _place(stopped), None)
    agrees = any(
        wanted == steps and _same_end(journey, destination, dropped=stopped is not None) for wanted, journey in expected
    )
    return Followed(steps, destination, _place(stopped), agrees)


def _steps(journey: Journey, own: OwnTable | None) -> tuple[tuple[str, int], ...]:
    name = "" if own is None else own.name
    return tuple((one.chain, one.handle) for one in journey.decisions if one.applied and one.table == name)


def _same_end(journey: Journey, destination: str, *, dropped: bool) -> bool:
    """The header is shown where a chain begins, so a translation in the last chain of all is not seen."""
    ended = journey.end in (End.DROPPED, End.REFUSED) and not journey.routing and not journey.delivery.unheard
    return dropped is ended and (dropped or destination == journey.packet.destination)


def _place(event: TraceEvent | None) -> str:
    return "" if event is None else f"{event.table} {event.chain}"


def summary_of(followed: Sequence[Followed]) -> str:
    """One line: how many packets were seen, and whether they went as predicted."""
    asked = [one for one in followed if one.agrees is not None]
    if not followed:
        return "live: no such packet came"
    if not asked:
        return f"live: {len(followed)} packets, all of connections that are tracked already: nothing was decided again"
    other = [one for one in asked if not one.agrees]
    if not other:
        return f"live: {len(asked)} packets, all as predicted"
    way = other[0].dropped_by or other[0].destination
    return f"live: {len(other)} of {len(asked)} packets went another way than predicted, the first to {way}"
