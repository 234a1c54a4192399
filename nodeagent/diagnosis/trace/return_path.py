"""Follows an endpoint's first answer back through the node: the same hooks, chains and routing in reverse (pure).

NAT rules are not evaluated again: connection tracking undoes the translation at once. It finds the connection only in
the zone in which it was made (`ct zone set`), and not if a rule leaves the answer untracked.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from msgspec import Struct

from nodeagent.diagnosis.simulator.interpreter import place_in_hook
from nodeagent.diagnosis.simulator.machine import Machine
from nodeagent.diagnosis.simulator.packet import ACK, SYN, Packet
from nodeagent.diagnosis.trace.others import OtherTable
from nodeagent.diagnosis.trace.others_walk import TRACKING, pass_other_chain
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.routes import Between, Leg, Route, RouteOutcome, Router
from nodeagent.diagnosis.trace.traveller import LOOPBACK_INTERFACE, Decision, Traveller
from nodeagent.proxy.dataplane.program.chain import ChainType, HookNumber
from nodeagent.wire.netlink.nf_tables.expressions import Code
from nodeagent.wire.netlink.uapi.nfnetlink_conntrack import IPS_SEEN_REPLY

TRANSLATING = -100
"""The priority at which a masquerade is undone (NF_IP_PRI_NAT_DST)."""
TRANSLATING_SOURCE = 100
"""The priority at which the answer gets back the source that the client used (NF_IP_PRI_NAT_SRC)."""
_FIRST, _LAST = -(1 << 31), (1 << 31) - 1


class Back(Enum):
    """How an answer fares. UNCLEAR: a rule drops it, but an earlier rule that cannot be evaluated may accept it."""

    ARRIVES = "arrives"
    STOPPED = "stopped by a rule"
    NO_WAY = "stopped by the routing"
    UNTRACKED = "not tracked"
    OTHER_ZONE = "in another zone"
    UNCLEAR = "unclear"


class ReplyPath(Struct, frozen=True):
    """How the first answer fares. route: the kernel's, if end is NO_WAY. zones: the conntrack zones of request and
    answer, if end is OTHER_ZONE. decisions: the rules of other programs that it met. clamped: one of them makes the
    client send shorter segments."""

    end: Back = Back.ARRIVES
    route: Route | None = None
    zones: tuple[int, int] = (0, 0)
    decisions: tuple[Decision, ...] = ()
    clamped: bool = False

    @property
    def lost(self) -> bool:
        """Whether it certainly does not reach the client; False if that is unclear."""
        return self.end not in (Back.ARRIVES, Back.UNCLEAR)


def follow_answer(
    question: Question, request: Traveller, route: Route, others: Sequence[OtherTable], router: Router
) -> ReplyPath:
    """Follows the first answer to a translated request. request: as it left. route: by which it left, or was delivered
    here."""
    return _AnswerWalk(question, request, route, others, router).follow()


class _Lost(Exception):
    """Raised if the answer goes no further. route, zones: as in ReplyPath."""

    def __init__(self, end: Back, route: Route | None = None, zones: tuple[int, int] = (0, 0)) -> None:
        super().__init__(end)
        self.end, self.route, self.zones = end, route, zones


class _AnswerWalk:
    def __init__(
        self, question: Question, request: Traveller, route: Route, others: Sequence[OtherTable], router: Router
    ) -> None:
        self._question, self._request = question, request
        self._others, self._router = others, router
        machine = request.machine
        self._here = route.way is RouteOutcome.HERE
        iif = "" if self._here else route.interface
        hidden = request.new_source
        if machine.masqueraded and not hidden:
            hidden = router.route(Leg(machine.destination)).source
        first = hidden or question.source
        packet = Packet(
            machine.destination,
            first,
            int(question.protocol),
            source_port=machine.port,
            iif=iif or None,
            tcp_flags=SYN | ACK,
        )
        status = machine.status | IPS_SEEN_REPLY
        back = Machine(machine.sets, packet, (), first, 0, 0, status)
        self._traveller = Traveller(packet, back, iif, back=iif, request=request.packet)

    def follow(self) -> ReplyPath:
        traveller = self._traveller
        try:
            self._come_in()
            self._go_out()
        except _Lost as lost:
            decisions = tuple(traveller.decisions)
            unclear = lost.end is Back.STOPPED and any(one.unclear for one in decisions)
            return ReplyPath(Back.UNCLEAR if unclear else lost.end, lost.route, lost.zones, decisions)
        return ReplyPath(decisions=tuple(traveller.decisions), clamped=traveller.clamped)

    def _come_in(self) -> None:
        """Walks the answer's first hook; connection tracking undoes the translation. Raises _Lost."""
        traveller = self._traveller
        entry = HookNumber.OUTPUT if self._here else HookNumber.PREROUTING
        if self._here:
            self._find_way()
        self._pass(entry, _FIRST, TRACKING)
        if traveller.machine.untracked:
            raise _Lost(Back.UNTRACKED)
        zones = self._request.reply_zone, traveller.reply_zone
        if zones[0] != zones[1]:
            raise _Lost(Back.OTHER_ZONE, zones=zones)
        self._pass(entry, TRACKING, TRANSLATING + 1)
        traveller.machine.destination = self._question.source
        self._pass(entry, TRANSLATING + 1, _LAST)

    def _go_out(self) -> None:
        """Walks from the routing decision on: input, or forward and postrouting; through loopback all but forward.
        Raises _Lost.
        A bridged answer is routed only if its destination was rewritten; in postrouting it has no input interface."""
        traveller = self._traveller
        if self._here:
            if traveller.rerouted:
                self._find_way()
            self._leave(HookNumber.POSTROUTING)
            if traveller.oif == LOOPBACK_INTERFACE:
                traveller.iif, traveller.oif = LOOPBACK_INTERFACE, ""
                self._pass(HookNumber.PREROUTING)
                self._pass(HookNumber.INPUT)
        elif self._is_bridged():
            if self._request.machine.masqueraded:
                self._find_way()
            traveller.oif = traveller.iif
            self._pass(HookNumber.FORWARD)
            traveller.iif = ""
            self._leave(HookNumber.POSTROUTING)
        elif self._find_way() is RouteOutcome.HERE:
            traveller.oif = ""
            self._leave(HookNumber.INPUT)
        else:
            self._pass(HookNumber.FORWARD)
            self._leave(HookNumber.POSTROUTING)

    def _is_bridged(self) -> bool:
        """Returns whether a bridge carries the answer from one of its ports to another, through the rules."""
        came_by = self._request.packet.iif
        by_one = came_by is not None and came_by == self._traveller.iif
        return by_one and self._router.between(self._traveller.iif, self._question.family) is Between.FILTERED

    def _leave(self, last: HookNumber) -> None:
        """Walks the last hook, in which the answer gets the Service's address and port as its source. Raises _Lost."""
        self._pass(last, end=TRANSLATING_SOURCE + 1)
        asked = self._question
        self._traveller.packet = replace(self._traveller.packet, source=asked.destination, source_port=asked.port)
        self._pass(last, TRANSLATING_SOURCE + 1)

    def _find_way(self) -> RouteOutcome:
        """Routes the answer to the client. Returns HERE or OUT and sets the outgoing interface. Raises _Lost without a
        route."""
        traveller = self._traveller
        leg = Leg(
            self._question.source,
            traveller.packet.source,
            traveller.iif,
            self._question.protocol,
            mark=traveller.mark,
            source_port=traveller.packet.source_port,
        )
        found = self._router.route(leg)
        if found.way not in (RouteOutcome.HERE, RouteOutcome.OUT):
            raise _Lost(Back.NO_WAY, found)
        traveller.oif = LOOPBACK_INTERFACE if found.way is RouteOutcome.HERE else found.interface
        return found.way

    def _pass(self, number: HookNumber, first: int = _FIRST, end: int = _LAST) -> None:
        """Walks the chains of a hook, except those of NAT, with first <= priority < end. Raises _Lost."""
        self._traveller.hook = number.name.lower()
        stops = [
            (place_in_hook(chain.hook), (table, chain))
            for table in self._others
            for chain in table.hooked(number)
            if chain.hook is not None and chain.hook.type is not ChainType.NAT and first <= chain.hook.priority < end
        ]
        for _, (table, chain) in sorted(stops, key=lambda stop: stop[0]):
            if pass_other_chain(table, chain, self._traveller) is not Code.ACCEPT:
                raise _Lost(Back.STOPPED)
