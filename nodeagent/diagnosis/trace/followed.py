"""Compares packets that the kernel traced with the prediction (pure)."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeagent.diagnosis.trace.journey import End, Journey
from nodeagent.diagnosis.trace.own_table import OwnTable
from nodeagent.proxy.dataplane.program import schema
from nodeagent.wire.netlink.nf_tables.tracing import TraceEvent

OWN_HELPER = f"{schema.TABLE}-trace"
"""Name prefix of the tables that turn tracing on."""


class TracedPacket(Struct, frozen=True):
    """One packet. steps: our rules that applied, by chain and handle. destination: the last one seen. agrees: whether
    it went as predicted; None: its connection is already tracked, so NAT rules did not decide again."""

    steps: tuple[tuple[str, int], ...]
    destination: str
    dropped_by: str
    agrees: bool | None


def packets_of(events: Iterable[TraceEvent]) -> list[tuple[TraceEvent, ...]]:
    """Returns events by packet, in the order of the packets.

    When a bridge passes a packet from `prerouting` to the routing, it continues under another id, into which the kernel
    mixes its input interface (trace_fill_id). It is recognised by its source port.
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


def judge(events: Sequence[TraceEvent], predicted: Iterable[Journey], own: OwnTable | None) -> TracedPacket:
    """Compares the events of one packet with the prediction."""
    steps = tuple((event.chain, event.rule) for event in events if event.table == schema.TABLE and event.rule)
    destination = next((event.destination for event in reversed(events) if event.destination), "")
    stopped = next((event for event in events if event.stops), None)
    expected = [(_steps(journey, own), journey) for journey in predicted]
    if not steps and all(wanted for wanted, _ in expected):
        return TracedPacket(steps, destination, _place(stopped), None)
    agrees = any(
        wanted == steps and _same_end(journey, destination, dropped=stopped is not None) for wanted, journey in expected
    )
    return TracedPacket(steps, destination, _place(stopped), agrees)


def _steps(journey: Journey, own: OwnTable | None) -> tuple[tuple[str, int], ...]:
    name = "" if own is None else own.name
    return tuple((one.chain, one.handle) for one in journey.decisions if one.applied and one.table == name)


def _same_end(journey: Journey, destination: str, *, dropped: bool) -> bool:
    """A header is shown where a chain begins, so a translation in the very last chain is not seen."""
    ended = journey.end in (End.DROPPED, End.REFUSED) and not journey.routing and not journey.delivery.no_listener
    return dropped is ended and (dropped or destination == journey.packet.destination)


def _place(event: TraceEvent | None) -> str:
    return "" if event is None else f"{event.table} {event.chain}"


def summary_of(followed: Sequence[TracedPacket]) -> str:
    """Returns one line: how many packets were seen, and whether they went as predicted."""
    asked = [one for one in followed if one.agrees is not None]
    if not followed:
        return "live: no such packet arrived"
    if not asked:
        return f"live: {len(followed)} packets, all of connections that are tracked already: NAT rules did not decide again"
    other = [one for one in asked if not one.agrees]
    if not other:
        return f"live: {len(asked)} packets, all as predicted"
    way = other[0].dropped_by or other[0].destination
    return f"live: {len(other)} of {len(asked)} packets did not go as predicted, the first one to {way}"
