"""A connection's first packet through the whole node: every hook, everybody's chains, the routes between them (pure).

The kernel's order: prerouting, route, then input or forward and postrouting; of the node's own packets route, output,
route again where they were translated, postrouting, and for those to itself prerouting and input by way of loopback.
`numgen random` is explored: a journey for each number, with its probability.
"""

from collections.abc import Iterator
from enum import Enum
from fractions import Fraction

from msgspec import Struct

from nodeagent.dataplane.nft.chain import Chain, ChainType, HookNumber, Program
from nodeagent.dataplane.nft.interpreter import DESTINATION_HOOKS, Interpreter, fate_of, hook_of, place_in_hook
from nodeagent.dataplane.nft.machine import ChoiceNeeded
from nodeagent.dataplane.nft.packet import Fate, Packet
from nodeagent.dataplane.nft.spelling import Step
from nodeagent.netlink.nf_tables.expressions import Code
from nodeagent.trace.others import OtherChain, OtherTable
from nodeagent.trace.others_walk import is_done, pass_other_chain
from nodeagent.trace.own_table import OwnTable
from nodeagent.trace.question import Question
from nodeagent.trace.routes import Leg, Route, Router, Way
from nodeagent.trace.traveller import Decision, Traveller

LOOPBACK = "lo"


class End(Enum):
    """Where a journey ends. UNREACHABLE: there is no way for it."""

    ARRIVED = "arrives"
    REFUSED = "refused"
    DROPPED = "dropped"
    UNREACHABLE = "unreachable"


class Node(Struct, frozen=True):
    """What was read of a node. own: None where there is no table of ours. local: the node's own addresses."""

    own: OwnTable | None
    others: tuple[OtherTable, ...] = ()
    local: frozenset[str] = frozenset()


class Journey(Struct, frozen=True):
    """One thing that can become of the packet. destination, port: where it went in the end.

    translated: by anybody. rewritten: whether its source becomes the node's. route: the last one asked for. came_by: the
    interface, empty for the node's own. routing: the end is the routing's doing, not a rule's. unheard: it came to this
    node, where no program waits for it.
    """

    end: End
    probability: Fraction
    destination: str
    port: int
    translated: bool
    rewritten: bool
    route: Route | None
    came_by: str
    decisions: tuple[Decision, ...]
    routing: bool = False
    here: bool = False
    unheard: bool = False

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Where it was translated to; None when it was not, or did not arrive."""
        return (self.destination, self.port) if self.end is End.ARRIVED and self.translated else None


def journeys(question: Question, node: Node, router: Router, interface: str = "") -> tuple[Journey, ...]:
    """Everything that can become of the connection; probabilities add up to 1.

    interface: by which it comes in; by default that of the route back to its source, or none for the node's own.
    """
    return tuple(_Trip(question, node, router, interface).explore())


class _Trip:
    def __init__(self, question: Question, node: Node, router: Router, interface: str) -> None:
        self._question, self._node, self._router = question, node, router
        self._back = router.route(Leg(question.source))
        self._sent_here = self._back.way is Way.HERE and not interface
        self._iif = "" if self._sent_here else interface or self._back.interface
        family = question.family
        program = Program(family, ()) if node.own is None else node.own.program
        place = (question.destination, int(question.protocol), question.port)
        bound = router.listens(question.destination, question.port, question.protocol, exactly=True)
        self._own: Interpreter = (
            Interpreter(program, {}, {}, node.local)
            if node.own is None
            else node.own.interpreter(node.local, (place,) if bound else ())
        )
        self._name = "" if node.own is None else node.own.name
        self._others = tuple(table for table in node.others if family in table.families)

    def explore(self) -> Iterator[Journey]:
        branches: list[tuple[int, ...]] = [()]
        while branches:
            choices = branches.pop()
            try:
                yield self._journey(choices)
            except ChoiceNeeded as needed:
                branches.extend((*choices, number) for number in reversed(range(needed.among)))

    def _journey(self, choices: tuple[int, ...]) -> Journey:
        asked = self._question
        packet = Packet(asked.source, asked.destination, asked.protocol, asked.port, iif=self._iif or None)
        traveller = Traveller(packet, self._own.machine(packet, choices), self._iif, back=self._back.interface)
        return self._leave(traveller) if self._sent_here else self._come_in(traveller)

    def _come_in(self, traveller: Traveller) -> Journey:
        if not self._iif:
            return self._end(traveller, End.UNREACHABLE, self._back, routing=True)
        if not self._pass(HookNumber.PREROUTING, traveller):
            return self._stopped(traveller, None)
        route = self._route(traveller, self._question.source, self._iif)
        if route.way is Way.HERE:
            accepted = self._pass(HookNumber.INPUT, traveller)
            return self._end(traveller, End.ARRIVED, route) if accepted else self._stopped(traveller, route)
        if route.way is not Way.OUT:
            return self._not_routed(traveller, route)
        traveller.oif = route.interface
        accepted = self._pass(HookNumber.FORWARD, traveller) and self._pass(HookNumber.POSTROUTING, traveller)
        return self._end(traveller, End.ARRIVED, route) if accepted else self._stopped(traveller, route)

    def _leave(self, traveller: Traveller) -> Journey:
        route = self._route(traveller, self._question.source, "")
        if route.way not in (Way.HERE, Way.OUT):
            return self._not_routed(traveller, route)
        traveller.oif = LOOPBACK if route.way is Way.HERE else route.interface
        if not self._pass(HookNumber.OUTPUT, traveller):
            return self._stopped(traveller, route)
        if traveller.machine.translated:
            route = self._route(traveller, "", "")
            if route.way not in (Way.HERE, Way.OUT):
                return self._not_routed(traveller, route)
            traveller.oif = LOOPBACK if route.way is Way.HERE else route.interface
        if not self._pass(HookNumber.POSTROUTING, traveller):
            return self._stopped(traveller, route)
        if route.way is Way.HERE:
            traveller.iif, traveller.oif = LOOPBACK, ""
            for number in (HookNumber.PREROUTING, HookNumber.INPUT):
                if not self._pass(number, traveller, filters_only=True):
                    return self._stopped(traveller, route)
        return self._end(traveller, End.ARRIVED, route)

    def _route(self, traveller: Traveller, source: str, interface: str) -> Route:
        machine = traveller.machine
        leg = Leg(machine.destination, source, interface, self._question.protocol, machine.port, traveller.mark)
        return self._router.route(leg)

    def _pass(self, number: HookNumber, traveller: Traveller, *, filters_only: bool = False) -> bool:
        """Whether the packet gets past all chains of a hook."""
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
            if not passed:
                return False
        return True

    def _pass_own(self, chain: Chain, number: int, traveller: Traveller, *, filters_only: bool) -> bool:
        machine = traveller.machine
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
        return self._end(traveller, End.REFUSED if refused else End.DROPPED, route)

    def _not_routed(self, traveller: Traveller, route: Route) -> Journey:
        silent = route.way in (Way.BLACKHOLE, Way.REJECTED)
        return self._end(traveller, End.DROPPED if silent else End.UNREACHABLE, route, routing=True)

    def _end(self, traveller: Traveller, end: End, route: Route | None, *, routing: bool = False) -> Journey:
        machine = traveller.machine
        here = end is End.ARRIVED and route is not None and route.way is Way.HERE
        unheard = here and not self._router.listens(machine.destination, machine.port, self._question.protocol)
        return Journey(
            End.REFUSED if unheard else end,
            machine.probability,
            machine.destination,
            machine.port,
            machine.translated,
            machine.masqueraded,
            route,
            self._iif,
            tuple(traveller.decisions),
            routing,
            here,
            unheard,
        )
