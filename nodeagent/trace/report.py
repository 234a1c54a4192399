"""What a trace says: the verdict first, then how it came about (pure)."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from msgspec import Struct

from nodeagent.model.addresses import endpoint_text
from nodeagent.trace.journey import End, Journey, Node
from nodeagent.trace.question import Question
from nodeagent.trace.reasons import Reason, arrives, reason_of, scope_of, why_rewritten
from nodeagent.trace.traveller import Decision

_LOSS = {End.REFUSED: "refused", End.DROPPED: "dropped", End.UNREACHABLE: "unreachable"}


class TrackedFlow(Struct, frozen=True):
    """A flow of UDP that is tracked: its client, and who its packets go to."""

    source: str
    port: int
    endpoint: tuple[str, int]


class Connections(Struct, frozen=True):
    """The connection table: entries, and how many there may be (0: not known); the flows that the question is about."""

    count: int = 0
    most: int = 0
    flows: tuple[TrackedFlow, ...] = ()

    @property
    def full(self) -> bool:
        """Whether a new connection finds no place."""
        return 0 < self.most <= self.count


class Report(Struct, frozen=True):
    """Everything there is to say. notes: what was not looked at, and why."""

    question: Question
    node: Node
    found: tuple[Journey, ...]
    connections: Connections = Connections()
    notes: tuple[str, ...] = ()

    @property
    def arrives(self) -> bool:
        """Whether every such connection does."""
        return arrives(self.found) and not self.connections.full and not self.stale

    @property
    def stale(self) -> tuple[TrackedFlow, ...]:
        """Tracked flows that go where no new one would."""
        ends = {(journey.destination, journey.port) for journey in self.found}
        return tuple(flow for flow in self.connections.flows if flow.endpoint not in ends)

    @property
    def verdict(self) -> str:
        """One line: what becomes of the connection, why, and what to do."""
        lost = [journey for journey in self.found if journey.end is not End.ARRIVED]
        table = self.connections
        if table.full:
            fill = f"{table.count} of {table.most} entries"
            why = Reason(f"the connection table is full ({fill})", "raise net.netfilter.nf_conntrack_max")
            return self._line("dropped", why)
        if lost:
            chance = sum((journey.probability for journey in lost), Fraction(0))
            why = reason_of(self.question, lost[0], self.node.own)
            if chance == 1:
                return self._line(_LOSS[lost[0].end], why)
            return self._line(f"fails in {_percent(chance)}, {_LOSS[lost[0].end]} then", why)
        if self.stale:
            flow = self.stale[0]
            client, old = endpoint_text(flow.source, flow.port), endpoint_text(*flow.endpoint)
            why = Reason(
                f"the tracked flow of {client} still goes to {old}, where no new one would",
                f"conntrack -D -p udp -s {flow.source} --sport {flow.port}",
            )
            return self._line("stale", why)
        return f"arrives: {self.question}, {self._target()}"

    def _line(self, what: str, reason: Reason) -> str:
        cure = f"; {reason.cure}" if reason.cure else ""
        return f"{what}: {self.question}: {reason.why}{self._missing()}{cure}"

    def _missing(self) -> str:
        """That there is no table of ours, where that explains why nothing was translated."""
        return "" if self.node.own is not None or any(one.translated for one in self.found) else _NO_TABLE

    def _target(self) -> str:
        service = self.service
        ends = sorted({endpoint_text(*one.endpoint) for one in self.found if one.endpoint is not None})
        if not ends:
            return f"as it was sent, to no Service{self._missing()}"
        name = service or "translated by others"
        return f"{name}: {ends[0]}" if len(ends) == 1 else f"{name}: one of {len(ends)} endpoints"

    @property
    def service(self) -> str:
        """The service port it is for; empty for none."""
        return "" if self.node.own is None else self.node.own.service_of(self.question)

    def document(self) -> dict[str, Any]:
        """The same as values, the verdict first."""
        own = self.node.own
        return {
            "verdict": self.verdict,
            "arrives": self.arrives,
            "connection": str(self.question),
            "service": self.service,
            "outcomes": [
                {
                    "end": one.end.value,
                    "probability": str(one.probability),
                    "destination": endpoint_text(one.destination, one.port),
                    "translated": one.translated,
                    "scope": scope_of(one, own),
                    "sourceRewritten": one.rewritten,
                    "why": why_rewritten(one, own)
                    if one.end is End.ARRIVED
                    else reason_of(self.question, one, own).why,
                    "from": one.came_by,
                    "route": None if one.route is None else str(one.route),
                    "interface": "" if one.route is None else one.route.interface,
                    "decisions": [
                        {
                            "hook": step.hook,
                            "table": step.table,
                            "chain": step.chain,
                            "rule": step.rule or None,
                            "handle": step.handle or None,
                            "text": step.text,
                            "effect": step.effect,
                            "applied": step.applied,
                            "evaluated": not step.unclear,
                        }
                        for step in one.decisions
                    ],
                }
                for one in self.found
            ],
            "notes": list(self.notes),
        }

    def lines(self, *, everything: bool = False) -> list[str]:
        """Text for people, the verdict first. everything: rules that did not apply too.

        Where one of many is picked, the rules of each are told once for all that met the same.
        """
        first = self.found[0]
        common = _shared(self.found)
        came = f"came in by {first.came_by}" if first.came_by else "sent by this node"
        lines = [self.verdict, f"  {came}"]
        lines += _told(first.decisions[:common], everything=everything)
        if len(self.found) > 1:
            lines.append(f"  then one of {len(self.found)} at random:")
        shown: set[tuple[tuple[str, int, bool], ...]] = set()
        for one in self.found:
            way = tuple((step.chain, step.handle, step.applied) for step in one.decisions)
            lines += self._end_lines(one, common, everything=everything, new=way not in shown)
            shown.add(way)
        lines += (f"  note: {note}" for note in self.notes)
        return lines

    def _end_lines(self, one: Journey, common: int, *, everything: bool, new: bool) -> list[str]:
        own = self.node.own
        where = endpoint_text(one.destination, one.port)
        chance = "" if one.probability == 1 else f" ({_percent(one.probability)})"
        lines = _told(one.decisions[common:], everything=everything) if new else []
        if one.end is End.ARRIVED:
            scope = scope_of(one, own)
            lines.append(f"  {one.end.value}{chance}: {where}{f', the list for {scope}' if scope else ''}, {one.route}")
            lines.append(f"    source rewritten: {why_rewritten(one, own)}")
        else:
            lines.append(f"  {one.end.value}{chance}: {where}: {reason_of(self.question, one, own).why}")
        return lines


_NO_TABLE = " (there is no table nodeagent: start the agent, or see who flushed it)"


def _percent(chance: Fraction) -> str:
    return f"{float(chance):.3g} of 1" if chance.denominator > 1 << 7 else f"{chance} of all cases"


def _shared(found: Sequence[Journey]) -> int:
    """How many decisions all journeys begin with."""
    shortest = min(len(one.decisions) for one in found)
    for number in range(shortest):
        if any(one.decisions[number] != found[0].decisions[number] for one in found):
            return number
    return shortest


def _told(decisions: Iterable[Decision], *, everything: bool) -> list[str]:
    lines = []
    for one in decisions:
        if not (one.applied or one.unclear or everything):
            continue
        mark = "?" if one.unclear else " " if one.applied else "✗"
        effect = f" => {one.effect}" if one.effect else ""
        lines.append(f" {mark}{one.hook:<12} {one.place}: {one.text}{effect}")
    return lines
