"""The text of a trace: the verdict first, then its explanation (pure)."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from msgspec import Struct

from nodeagent.diagnosis.trace.connections import Connections, SilentEndpoint, TrackedFlow
from nodeagent.diagnosis.trace.journey import End, Journey, Node
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.reasons import (
    Reason,
    arrives,
    reason_of,
    scope_of,
    strange_source,
    unclear_rule,
    why_rewritten,
)
from nodeagent.diagnosis.trace.traveller import Decision
from nodeagent.diagnosis.verdict_line import verdict_line
from nodeagent.model.addresses import endpoint_text
from nodeagent.proxy.dataplane.source_ports import CURE, PortShortage


class Report(Struct, frozen=True):
    """The result of a trace. notes: what was not examined, and why."""

    question: Question
    node: Node
    found: tuple[Journey, ...]
    connections: Connections = Connections()
    notes: tuple[str, ...] = ()

    @property
    def arrives(self) -> bool:
        """Whether every such connection arrives."""
        return arrives(self.found) and not (self.connections.full or self.stale or self._crowded_out)

    @property
    def _crowded_out(self) -> tuple[Journey, ...]:
        """The journeys that find no free source port."""
        return tuple(one for one in self.found if any(crowd.full for crowd in self._crowds(one)))

    def _crowds(self, one: Journey) -> tuple[PortShortage, ...]:
        """Returns the crowds that a connection would join."""
        if not one.packet.rewritten or one.end is not End.ARRIVED:
            return ()
        end = one.packet.destination, one.packet.port
        return tuple(crowd for crowd in self.connections.crowds if crowd.endpoint == end)

    @property
    def stale(self) -> tuple[TrackedFlow, ...]:
        """Tracked flows to endpoints that no new connection would use; empty if the packets are untracked."""
        if not any(journey.packet.tracked for journey in self.found):
            return ()
        ends = {(journey.packet.destination, journey.packet.port) for journey in self.found}
        return tuple(flow for flow in self.connections.flows if flow.endpoint not in ends)

    @property
    def verdict(self) -> str:
        """One line: what happens to the connection, why, and what to do."""
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
                return self._line(lost[0].end.value, why)
            return self._line(f"fails in {_percent(chance)} ({lost[0].end.value})", why)
        if self._crowded_out:
            chance = sum((journey.probability for journey in self._crowded_out), Fraction(0))
            crowd = self._crowds(self._crowded_out[0])[0]
            what = "dropped" if chance == 1 else f"fails in {_percent(chance)} (dropped)"
            return self._line(what, Reason(str(crowd), CURE.format(crowd.endpoint[0])))
        if self.stale:
            flow = self.stale[0]
            client, old = endpoint_text(flow.source, flow.port), endpoint_text(*flow.endpoint)
            why = Reason(
                f"the tracked flow of {client} still goes to {old}, where no new connection would go",
                f"conntrack -D -p udp -s {flow.source} --sport {flow.port}",
            )
            return self._line("stale", why)
        unseen = self._reservations()
        return f"arrives: {self.question}, {self._target()}" + (f"; as far as is known: {unseen}" if unseen else "")

    def _reservations(self) -> str:
        """Returns what may stop it after all: a rule that cannot be evaluated, what was not examined, or an earlier
        failure. Empty for nothing."""
        return "; ".join(
            filter(None, (self._unseen(), self._hole(), self._silence(), self._left_behind(), self._crowd()))
        )

    def _unseen(self) -> str:
        for one in self.found:
            if unclear := unclear_rule(one):
                return unclear
            if strange := strange_source(one, self.node):
                return strange.why
            if (
                one.end is End.ARRIVED
                and one.packet.translated
                and not one.delivery.here
                and (again := self._service_at(one))
            ):
                end = endpoint_text(one.packet.destination, one.packet.port)
                return f"{end} is an address of {again} itself, and a connection is translated only once here"
        return self.notes[0] if self.notes else ""

    def _service_at(self, one: Journey) -> str:
        """Returns the service port at the translated address itself; empty if no Service has it."""
        own, asked = self.node.own, self.question
        at = Question(asked.source, one.packet.destination, one.packet.port, asked.protocol)
        return own.service_of(at) if own is not None and own.serves(at) else ""

    def _silence(self) -> str:
        """Says that the client's last connection to one of these endpoints was not answered."""
        ends = {one.endpoint for one in self.found}
        silent: SilentEndpoint | None = next((one for one in self.connections.silent if one.endpoint in ends), None)
        if silent is None:
            return ""
        return (
            f"the last connection of {self.question.source}, {silent.ago} s ago, got no answer from "
            f"{endpoint_text(*silent.endpoint)}: see the firewall and the routes there"
        )

    def _left_behind(self) -> str:
        """Says that a connection of the client hangs at a former endpoint."""
        asked = self.question
        ends = {(one.packet.destination, one.packet.port) for one in self.found if one.packet.translated}
        left: SilentEndpoint | None = next((one for one in self.connections.silent if one.endpoint not in ends), None)
        if left is None or not ends:
            return ""
        return (
            f"a connection of {asked.source} still goes to {endpoint_text(*left.endpoint)}, where no new connection would go, and got no "
            f"answer for {left.ago} s: conntrack -D -p tcp -s {asked.source} -d {asked.destination} --dport {asked.port} "
            f"-r {left.endpoint[0]}"
        )

    def _crowd(self) -> str:
        """Says that few source ports are left towards an endpoint."""
        crowd = next((crowd for one in self.found for crowd in self._crowds(one)), None)
        return "" if crowd is None else f"{crowd}, and a connection without a free port is dropped"

    def _hole(self) -> str:
        """Says that long packets are lost although short ones arrive, or that pods do not find each other."""
        hole = next((one.hole for one in self.found if one.hole is not None), None)
        return "" if hole is None else f"{hole}: {hole.cure}"

    def _line(self, what: str, reason: Reason) -> str:
        return verdict_line(what, str(self.question), f"{reason.why}{self._missing()}", reason.cure)

    def _missing(self) -> str:
        """Says that our table is missing or empty, if that explains why nothing was translated."""
        if any(one.packet.translated for one in self.found):
            return ""
        own = self.node.own
        if own is None:
            return _NO_TABLE
        return _NO_RULES.format(own.name) if own.emptied else ""

    def _target(self) -> str:
        service, own, asked = self.service, self.node.own, self.question
        stays = all(
            one.delivery.here and (one.packet.destination, one.packet.port) == (asked.destination, asked.port)
            for one in self.found
        )
        if stays and own is not None and own.answers_names(asked):
            return "names, answered by this node"
        ends = sorted({endpoint_text(*one.endpoint) for one in self.found if one.endpoint is not None})
        if not ends:
            return f"as it was sent, to no Service{self._missing()}{self._beside_node_port()}"
        name = service or "translated by other rules"
        rule = self._translated_by_others() if service else None
        if rule is not None:
            name = f"translated by other rules before {service} is used ({rule})"
        return f"{name}: {ends[0]}" if len(ends) == 1 else f"{name}: one of {len(ends)} endpoints"

    def _beside_node_port(self) -> str:
        """Says that a program of this node answers on a node port, at an address that is not the Service's."""
        own = self.node.own
        service = "" if own is None else own.node_port_of(self.question)
        if own is None or not service or not all(one.delivery.here for one in self.found):
            return ""
        return (
            f": a program of this node listens there; {self.question.port} is a node port of {service}, answered at "
            f"{', '.join(own.node_port_addresses) or 'no address of this node'} only"
        )

    def _translated_by_others(self) -> Decision | None:
        own = "" if self.node.own is None else self.node.own.name
        rules = (step for one in self.found for step in one.decisions if step.applied and step.table != own)
        return next((step for step in rules if step.translates), None)

    @property
    def service(self) -> str:
        """The service port of the destination; empty if no Service has it."""
        return "" if self.node.own is None else self.node.own.service_of(self.question)

    def document(self) -> dict[str, Any]:
        """Returns the same as values, the verdict first."""
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
                    "destination": endpoint_text(one.packet.destination, one.packet.port),
                    "translated": one.packet.translated,
                    "scope": scope_of(one, own),
                    "sourceRewritten": one.packet.rewritten,
                    "why": why_rewritten(one, own)
                    if one.end is End.ARRIVED
                    else reason_of(self.question, one, own).why,
                    "from": one.came_by,
                    "route": None if one.route is None else str(one.route),
                    "interface": "" if one.route is None else one.route.interface,
                    "decisions": _documents(one.decisions),
                    "answer": None
                    if one.answer is None
                    else {"end": one.answer.end.value, "decisions": _documents(one.answer.decisions)},
                }
                for one in self.found
            ],
            "notes": list(self.notes),
        }

    def lines(self, *, everything: bool = False) -> list[str]:
        """Returns text for people, the verdict first. everything: also rules that did not apply.

        If one of many endpoints is picked, equal rules are printed once.
        """
        first = self.found[0]
        common = _shared(self.found)
        came = f"came in by {first.came_by}" if first.came_by else "sent by this node"
        lines = [self.verdict, f"  {came}"]
        lines += _decision_lines(first.decisions[:common], everything=everything)
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
        where = endpoint_text(one.packet.destination, one.packet.port)
        chance = "" if one.probability == 1 else f" ({_percent(one.probability)})"
        lines = _decision_lines(one.decisions[common:], everything=everything) if new else []
        if one.end is End.ARRIVED:
            scope = scope_of(one, own)
            lines.append(f"  {one.end.value}{chance}: {where}{f', the list for {scope}' if scope else ''}, {one.route}")
            lines.append(f"    source rewritten: {why_rewritten(one, own)}")
        else:
            lines.append(f"  {one.end.value}{chance}: {where}: {reason_of(self.question, one, own).why}")
        if one.answer is not None and (lines_of_answer := _decision_lines(one.answer.decisions, everything=everything)):
            lines += [f"    the answer of {where}:", *lines_of_answer]
        return lines


_NO_TABLE = " (there is no table nodeagent: start the agent, or find out what flushed it)"

_NO_RULES = " (table {} has lost its rules: restart the agent, and find out what flushed them)"


def _percent(chance: Fraction) -> str:
    return f"{float(chance):.3g} of 1" if chance.denominator > 1 << 7 else f"{chance} of all cases"


def _documents(decisions: Iterable[Decision]) -> list[dict[str, Any]]:
    return [
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
        for step in decisions
    ]


def _shared(found: Sequence[Journey]) -> int:
    """Returns the number of decisions with which all journeys begin."""
    shortest = min(len(one.decisions) for one in found)
    for number in range(shortest):
        if any(one.decisions[number] != found[0].decisions[number] for one in found):
            return number
    return shortest


def _decision_lines(decisions: Iterable[Decision], *, everything: bool) -> list[str]:
    lines = []
    for one in decisions:
        if not (one.applied or one.unclear or everything):
            continue
        mark = "?" if one.unclear else " " if one.applied else "✗"
        effect = f" => {one.effect}" if one.effect else ""
        lines.append(f" {mark}{one.hook:<12} {one.place}: {one.text}{effect}")
    return lines
