"""Follows a connection's first packet through the node: every hook, the chains of all programs, the routes between them
(pure).

The kernel's order: prerouting, route, then input or forward and postrouting. For the node's own packets: route, output,
route again if they were translated, postrouting; for those to itself also prerouting and input through loopback.
br_netfilter passes bridged packets to prerouting, forward and, without input interface, postrouting.

`numgen random` is explored: a journey for each number, with its probability.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from fractions import Fraction

from msgspec import Struct

from nodeagent.diagnosis.simulator.interpreter import DESTINATION_HOOKS, Interpreter, fate_of, hook_of, place_in_hook
from nodeagent.diagnosis.simulator.machine import ChoiceNeeded
from nodeagent.diagnosis.simulator.packet import Fate, Packet
from nodeagent.diagnosis.simulator.spelling import Step
from nodeagent.diagnosis.trace.narrow_ways import BlackHole, find_black_hole
from nodeagent.diagnosis.trace.neighbour_discovery import Unfound, find_unfound
from nodeagent.diagnosis.trace.others import OtherChain, OtherTable
from nodeagent.diagnosis.trace.others_walk import LOOPBACK, RESET, is_done, pass_other_chain
from nodeagent.diagnosis.trace.own_table import OwnTable
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.return_path import Back, ReplyPath, follow_answer
from nodeagent.diagnosis.trace.routes import Between, Leg, Route, RouteOutcome, Router
from nodeagent.diagnosis.trace.traveller import LOOPBACK_INTERFACE, Decision, Traveller
from nodeagent.model.addresses import Protocol
from nodeagent.proxy.dataplane.program.chain import Chain, ChainType, HookNumber, Program
from nodeagent.wire.netlink.nf_tables.expressions import Code


class End(Enum):
    """Where a journey ends. UNREACHABLE: there is no route, or the next hop does not answer. ONE_WAY: the packet
    arrives, but its answer does not come back. UNTRANSLATED: it is for a Service, but leaves the node as it was sent.
    """

    ARRIVED = "arrives"
    ONE_WAY = "one way"
    UNTRANSLATED = "untranslated"
    REFUSED = "refused"
    DROPPED = "dropped"
    UNREACHABLE = "unreachable"


class Node(Struct, frozen=True):
    """What was read of a node, for one family. own: our table, None if it does not exist. others: all other tables.
    local: the addresses whose packets are delivered here. at_interface: the same by interface."""

    own: OwnTable | None
    others: tuple[OtherTable, ...] = ()
    local: frozenset[str] = frozenset()
    at_interface: Mapping[str, frozenset[str]] = {}


class FinalPacket(Struct, frozen=True, kw_only=True):
    """The packet after all rules.
    destination, port: after all translations. translated: whether a rule of any table changed the destination.
    rewritten: whether its source becomes the node's. new_source: the source that rules of other programs give it; empty
    for the node's own. tracked: whether connection tracking sees it."""

    destination: str
    port: int
    translated: bool
    rewritten: bool
    new_source: str = ""
    tracked: bool = True


class Delivery(Struct, frozen=True, kw_only=True):
    """Its delivery on this node.
    here: it was delivered to this node. unheard: it was, but no program listens there. heard_at: the loopback address
    at which a program listens instead; empty if none does."""

    here: bool = False
    no_listener: bool = False
    listener_at: str = ""


class Journey(Struct, frozen=True, kw_only=True):
    """One possible journey of the packet, with its probability.
    route: the last one that was looked up. came_by: the input interface, empty for packets of the node. sent_here: whether this node sends it. routing:
    whether the routing ended it, not a rule. answer: how the first answer fares; None if it was not followed. bridged:
    a bridge of this node carries the answer past all rules. hole: where long packets are lost, or pods do not find
    each other."""

    end: End
    probability: Fraction
    packet: FinalPacket
    delivery: Delivery
    route: Route | None
    came_by: str
    sent_here: bool
    decisions: tuple[Decision, ...]
    routing: bool = False
    answer: ReplyPath | None = None
    bridged: bool = False
    hole: BlackHole | Unfound | None = None

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """(address, port) of the translation; None if it was not translated or did not arrive."""
        packet = self.packet
        return (packet.destination, packet.port) if self.end is End.ARRIVED and packet.translated else None


def journeys(
    question: Question, node: Node, router: Router, interface: str = "", most: int | None = None
) -> tuple[Journey, ...]:
    """Returns all possible journeys of the connection's first packet; probabilities add up to 1. Raises what `router`
    raises.
    interface: the input interface; by default that of the route back to the source, none for the node's own packets.
    most: how many numbers of each random choice are followed, evenly spread; then the probabilities add up to less."""
    return tuple(_JourneyWalk(question, node, router, interface).explore(most))


class _JourneyWalk:
    def __init__(self, question: Question, node: Node, router: Router, interface: str) -> None:
        self._question, self._node, self._router = question, node, router
        self._back = router.route(Leg(question.source))
        self._sent_here = self._back.way is RouteOutcome.HERE and not interface
        came_by = interface or self._back.interface or router.bridge_of(question.source)
        self._iif = "" if self._sent_here else came_by
        family = question.family
        program = Program(family, ()) if node.own is None else node.own.program
        place = (question.destination, int(question.protocol), question.port)
        bound = router.listens(question.destination, question.port, question.protocol, exactly=True)
        self._own: Interpreter = (
            Interpreter(program, {}, {}, node.local)
            if node.own is None
            else node.own.interpreter(node.local, (place,) if bound else (), node.at_interface)
        )
        self._name = "" if node.own is None else node.own.name
        others = (table for table in node.others if family in table.families)
        self._others = sorted(others, key=lambda table: -table.made)

    def explore(self, most: int | None = None) -> Iterator[Journey]:
        branches: list[tuple[int, ...]] = [()]
        while branches:
            choices = branches.pop()
            try:
                yield self._journey(choices)
            except ChoiceNeeded as needed:
                count = needed.among if most is None else min(most, needed.among)
                numbers = (place * needed.among // count for place in range(count))
                branches.extend((*choices, number) for number in reversed(list(numbers)))

    def _journey(self, choices: tuple[int, ...]) -> Journey:
        asked = self._question
        packet = Packet(asked.source, asked.destination, asked.protocol, asked.port, iif=self._iif or None)
        traveller = Traveller(packet, self._own.machine(packet, choices), self._iif, back=self._back.interface)
        if self._iif == self._back.interface:
            traveller.address = self._back.source
        if self._sent_here:
            return self._leave(traveller)
        if not self._iif:
            return self._end(traveller, End.UNREACHABLE, self._back, routing=True)
        beside, past = self._route_beside(), self._between_here() is Between.BRIDGED
        return self._go_out(traveller, beside) if beside and past else self._come_in(traveller, beside)

    def _come_in(self, traveller: Traveller, beside: Route | None) -> Journey:
        """Brings the packet into this node.
        beside: the route to the original destination, if the packet does not need this node to get there."""
        if not self._pass(HookNumber.PREROUTING, traveller):
            return self._stopped(traveller, None)
        untranslated = None if traveller.machine.translated else beside
        route = untranslated or self._route(traveller, self._question.source, self._iif)
        if untranslated is None and not self._is_bridged(traveller, route):
            route = self._router.barred(self._iif, self._question.source) or route
        if route.way is RouteOutcome.HERE:
            accepted = self._pass(HookNumber.INPUT, traveller)
            return self._end(traveller, End.ARRIVED, route) if accepted else self._stopped(traveller, route)
        if route.way is not RouteOutcome.OUT:
            return self._not_routed(traveller, route)
        traveller.oif = route.interface
        if not self._pass(HookNumber.FORWARD, traveller):
            return self._stopped(traveller, route)
        if self._is_bridged(traveller, route):
            traveller.iif = ""
        accepted = self._pass(HookNumber.POSTROUTING, traveller)
        return self._go_out(traveller, route) if accepted else self._stopped(traveller, route)

    def _between_here(self) -> Between:
        return self._router.between(self._iif, self._question.family)

    def _route_beside(self) -> Route | None:
        """Returns the route of a packet that a bridge of this node carries to its destination without routing; else
        None."""
        if self._between_here() not in (Between.FILTERED, Between.BRIDGED):
            return None
        destination = self._question.destination
        route = self._router.route(Leg(destination))
        if route.way is RouteOutcome.OUT:
            return route if route.interface == self._iif and not route.gateway else None
        unrouted = route.way is not RouteOutcome.HERE and self._router.bridge_of(destination) == self._iif
        return Route(RouteOutcome.OUT, self._iif) if unrouted else None

    def _is_bridged(self, traveller: Traveller, route: Route) -> bool:
        """Returns whether a bridge carries the packet from one of its ports to another."""
        direct = traveller.machine.translated or not route.gateway
        return direct and route.interface == self._iif and self._between(route) is Between.FILTERED

    def _leave(self, traveller: Traveller) -> Journey:
        route = self._route(traveller, self._question.source, "")
        if route.way not in (RouteOutcome.HERE, RouteOutcome.OUT):
            return self._not_routed(traveller, route)
        traveller.oif = LOOPBACK_INTERFACE if route.way is RouteOutcome.HERE else route.interface
        rerouting = _Rerouting(self, traveller, route)
        if not self._pass(HookNumber.OUTPUT, traveller, rerouting):
            return self._stopped(traveller, route) if rerouting.found else self._not_routed(traveller, rerouting.route)
        route = rerouting.route
        traveller.oif = LOOPBACK_INTERFACE if route.way is RouteOutcome.HERE else route.interface
        if not self._pass(HookNumber.POSTROUTING, traveller):
            return self._stopped(traveller, route)
        if route.way is RouteOutcome.HERE:
            traveller.iif, traveller.oif = LOOPBACK_INTERFACE, ""
            for number in (HookNumber.PREROUTING, HookNumber.INPUT):
                if not self._pass(number, traveller, filters_only=True):
                    return self._stopped(traveller, route)
            return self._end(traveller, End.ARRIVED, route)
        return self._go_out(traveller, route)

    def _go_out(self, traveller: Traveller, route: Route) -> Journey:
        destination = traveller.machine.destination
        barred = (
            None if self._iif == route.interface else self._router.barred(route.interface, route.gateway or destination)
        )
        beyond = barred or self._router.beyond(route, destination)
        if beyond.way is RouteOutcome.OUT and self._iif == route.interface and destination == self._question.source:
            beyond = self._router.back_by_port(route, destination)
        if beyond.way is not RouteOutcome.OUT:
            return self._not_routed(traveller, beyond)
        return self._end(traveller, End.ARRIVED, route)

    def _route(self, traveller: Traveller, source: str, interface: str) -> Route:
        machine = traveller.machine
        leg = Leg(machine.destination, source, interface, self._question.protocol, machine.port, traveller.mark)
        return self._router.route(leg)

    def look_up_again(self, traveller: Traveller) -> Route:
        """Returns the new route of a packet of this node, after a chain has changed its destination or mark."""
        return self._route(traveller, "", "")

    def _pass(
        self,
        number: HookNumber,
        traveller: Traveller,
        rerouting: "_Rerouting | None" = None,
        *,
        filters_only: bool = False,
    ) -> bool:
        """Returns whether the packet passes all chains of a hook. anew: whether to look up the route again after each chain."""
        traveller.hook = number.name.lower()
        own: list[tuple[tuple[int, int], Chain | tuple[OtherTable, OtherChain]]] = [
            (place_in_hook(hook_of(chain)), chain) for chain in self._own.hooked(number)
        ]
        stops = own + [
            (place_in_hook(chain.hook), (table, chain))
            for table in self._others
            for chain in table.hooked(number)
            if chain.hook is not None
        ]
        for _, stop in sorted(stops, key=lambda stop: stop[0]):
            if isinstance(stop, Chain):
                passed = self._pass_own(stop, number, traveller, filters_only=filters_only)
            else:
                table, chain = stop
                of_nat = chain.hook is not None and chain.hook.type is ChainType.NAT
                skipped = is_done(chain, traveller) or (filters_only and of_nat)
                passed = skipped or pass_other_chain(table, chain, traveller) is Code.ACCEPT
            if not passed or not (rerouting is None or rerouting.goes_on()):
                return False
        return True

    def _pass_own(self, chain: Chain, number: int, traveller: Traveller, *, filters_only: bool) -> bool:
        machine = traveller.machine
        machine.iif, machine.oif = traveller.iif, traveller.oif
        if hook_of(chain).type is ChainType.NAT:
            done = machine.translated if number in DESTINATION_HOOKS else machine.masqueraded
            if done or filters_only or not traveller.tracked:
                return True
        steps: list[Step] = []
        code = self._own.pass_chain(chain, machine, steps)
        traveller.decisions += (self._decision(traveller.hook, step) for step in steps)
        return code is Code.ACCEPT

    def _decision(self, hook: str, step: Step) -> Decision:
        own = self._node.own
        handles = () if own is None else own.handles.get(step.chain, ())
        handle = handles[step.rule - 1] if 0 < step.rule <= len(handles) else 0
        return Decision(
            hook,
            self._name,
            step.chain,
            step.text,
            rule=step.rule,
            handle=handle,
            applied=step.applied,
            unclear=step.unclear,
        )

    def _stopped(self, traveller: Traveller, route: Route | None) -> Journey:
        refused = bool(traveller.rejected) or fate_of(traveller.machine, accepted=False) is Fate.REFUSED
        answered = refused and not self._loses_its_reset(traveller, route)
        return self._end(traveller, End.REFUSED if answered else End.DROPPED, route)

    def _loses_its_reset(self, traveller: Traveller, route: Route | None) -> bool:
        """Returns whether the client ignores the reset. For a bridged packet it is sent through the input port, past
        rules and connection tracking (nf_send_reset), so it comes from the endpoint and not from the Service."""
        if traveller.rejected != RESET or not traveller.machine.translated:
            return False
        before = route is None and self._between_here() is Between.FILTERED
        return before or (route is not None and self._is_bridged(traveller, route))

    def _not_routed(self, traveller: Traveller, route: Route) -> Journey:
        silent = route.way in (RouteOutcome.BLACKHOLE, RouteOutcome.REJECTED)
        return self._end(traveller, End.DROPPED if silent else End.UNREACHABLE, route, routing=True)

    def _beyond(self, traveller: Traveller, route: Route) -> End:
        """Returns how a packet that left the node ends: whether its answer comes back through this node, if it must."""
        machine, own = traveller.machine, self._node.own
        if not machine.translated:
            return End.UNTRANSLATED if own is not None and own.serves(self._question) else End.ARRIVED
        if machine.masqueraded or not self._iif:
            return End.ARRIVED
        if machine.destination == self._question.source:
            return End.ONE_WAY
        around = self._iif == route.interface and self._between(route) in (Between.BRIDGED, Between.PAST)
        return End.ONE_WAY if around else End.ARRIVED

    def _between(self, route: Route) -> Between:
        return self._router.between(route.interface, self._question.family)

    def _end(self, traveller: Traveller, end: End, route: Route | None, *, routing: bool = False) -> Journey:
        machine = traveller.machine
        if end is End.ARRIVED and route is not None and route.way is RouteOutcome.OUT:
            end = self._beyond(traveller, route)
        here = end is End.ARRIVED and route is not None and route.way is RouteOutcome.HERE
        answer: ReplyPath | None = None
        hole: BlackHole | Unfound | None = None
        if end is End.ARRIVED and route is not None:
            answer = self._answer(traveller, route)
            hole = find_black_hole(self._question, traveller, route, answer, self._others, self._router)
            if not machine.masqueraded and self._is_bridged(traveller, route):
                hole = find_unfound(machine.destination, self._question.source, self._iif, traveller, self._others)
        no_listener = here and not self._router.listens(machine.destination, machine.port, self._question.protocol)
        if answer is not None and answer.lost:
            end = End.ONE_WAY
        packet = FinalPacket(
            destination=machine.destination,
            port=machine.port,
            translated=machine.translated,
            rewritten=machine.masqueraded,
            new_source=traveller.new_source,
            tracked=traveller.tracked,
        )
        return Journey(
            end=End.REFUSED if no_listener else end,
            probability=machine.probability,
            packet=packet,
            delivery=Delivery(
                here=here, no_listener=no_listener, listener_at=self._listener_at(machine.port) if no_listener else ""
            ),
            route=route,
            came_by=self._iif,
            sent_here=self._sent_here,
            decisions=tuple(traveller.decisions),
            routing=routing,
            answer=answer,
            bridged=end is End.ONE_WAY and route is not None and self._between(route) is Between.BRIDGED,
            hole=hole,
        )

    def _listener_at(self, port: int) -> str:
        """Returns the loopback address at which a program listens on that port; empty if no program does."""
        address = LOOPBACK[self._question.family]
        return address if self._router.listens(address, port, self._question.protocol, exactly=True) else ""

    def _answer(self, traveller: Traveller, route: Route) -> ReplyPath | None:
        """Returns how the answer to a translated packet fares; None for others, unless the answer becomes a new
        connection.

        That happens if only answers get a zone and this answer is not in it. An answer to such a new connection would
        look like the request, which is in the same zone, so the kernel gives the answer another source port
        (nf_nat_core.c, get_unique_tuple). SCTP begins no connection with an answer.
        """
        if traveller.machine.translated:
            return follow_answer(self._question, traveller, route, self._others, self._router)
        if traveller.zone_direction != "reply" or self._question.protocol is Protocol.SCTP:
            return None
        found = follow_answer(self._question, traveller, route, self._others, self._router)
        return found if found.end is Back.OTHER_ZONE and not found.zones[1] else None


class _Rerouting:
    """The route of a packet of the node itself: the kernel looks it up again after each chain that changed its
    destination or mark."""

    def __init__(self, trip: _JourneyWalk, traveller: Traveller, route: Route) -> None:
        self._trip, self._traveller, self.route = trip, traveller, route
        self._for = traveller.machine.destination

    @property
    def found(self) -> bool:
        """Whether the present route leads anywhere."""
        return self.route.way in (RouteOutcome.HERE, RouteOutcome.OUT)

    def goes_on(self) -> bool:
        """Looks the route up again if the last chain requires it. Returns whether it leads anywhere."""
        traveller = self._traveller
        if traveller.rerouted or traveller.machine.destination != self._for:
            traveller.rerouted, self._for = False, traveller.machine.destination
            self.route = self._trip.look_up_again(traveller)
        return self.found
