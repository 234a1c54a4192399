"""An interface that takes shorter packets than the one they come in by, and a rule that keeps the node from saying so (pure).

The node drops what is too long and tells the sender (ICMP "fragmentation needed", ICMPv6 "packet too big"). A sender that does not learn this
sends the same again: short packets pass, long ones never do.
"""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.diagnosis.simulator.interpreter import place_in_hook
from nodeagent.diagnosis.simulator.machine import Machine
from nodeagent.diagnosis.simulator.packet import ICMP, Packet
from nodeagent.diagnosis.trace.others import OtherTable
from nodeagent.diagnosis.trace.others_walk import pass_other_chain
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.return_path import Answer
from nodeagent.diagnosis.trace.routes import Leg, Route, RouteOutcome, Router
from nodeagent.diagnosis.trace.traveller import Decision, Traveller
from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.program.chain import ChainType, HookNumber
from nodeagent.wire.netlink.nf_tables.expressions import Code

_ERRORS = {Family.IPV4: ("destination-unreachable", 4), Family.IPV6: ("packet-too-big", 0)}
_NAMES = {Family.IPV4: "fragmentation needed", Family.IPV6: "packet too big"}


class Hole(Struct, frozen=True):
    """Long packets that vanish. sender: whose. narrow, wide: interfaces; width, wider: what they take, in bytes. rule: what stops
    the error."""

    sender: str
    narrow: str
    width: int
    wide: str
    wider: int
    rule: Decision

    def __str__(self) -> str:
        rule = self.rule
        return (
            f"packets of {self.sender} above {self.width} bytes are lost: {self.narrow} takes no longer ones ({self.wide}: "
            f"{self.wider}), and what tells it so is stopped: {rule.hook}: {rule.table}, chain {rule.chain}: {rule.text}"
        )


def find_hole(
    question: Question,
    request: Traveller,
    route: Route,
    answer: Answer | None,
    others: Sequence[OtherTable],
    router: Router,
) -> Hole | None:
    """The hole that a forwarded connection has in one of its directions. request: as it left. route: by which.

    A host right behind the narrow interface is taken to be as narrow, and to have said so to who sends.
    """
    into, out = router.width(request.iif), router.width(route.interface)
    if route.way is not RouteOutcome.OUT or not request.iif or not into or not out or into == out:
        return None
    of_client = into > out
    if not (route if of_client else router.route(Leg(question.source))).gateway:
        return None
    # What an end may send the other one says: the answer's option is for the client.
    clamped = (answer is not None and answer.clamped) if of_client else request.clamped
    if clamped and question.protocol is Protocol.TCP:
        return None
    sender = question.source if of_client else request.machine.destination
    rule = _stopped(question, request, sender, others, router)
    if rule is None:
        return None
    narrow, wide = (route.interface, request.iif) if of_client else (request.iif, route.interface)
    return Hole(sender, narrow, min(into, out), wide, max(into, out), rule)


def _stopped(
    question: Question, request: Traveller, sender: str, others: Sequence[OtherTable], router: Router
) -> Decision | None:
    """The rule that certainly stops the error; None where it may get through."""
    back = router.route(Leg(sender))
    if back.way is not RouteOutcome.OUT:
        return None
    family = question.family
    packet = Packet(back.source, sender, ICMP[family], iif=None)
    machine = Machine(request.machine.sets, packet, (), sender, 0, 0, request.machine.status)
    error = Traveller(packet, machine, "", back.interface, request=request.packet, error=_ERRORS[family])
    for number in (HookNumber.OUTPUT, HookNumber.POSTROUTING):
        error.hook = number.name.lower()
        stops = [
            (place_in_hook(chain.hook), (table, chain))
            for table in others
            for chain in table.hooked(number)
            if chain.hook is not None and chain.hook.type is not ChainType.NAT
        ]
        for _, (table, chain) in sorted(stops, key=lambda stop: stop[0]):
            if pass_other_chain(table, chain, error) is not Code.ACCEPT:
                unclear = any(one.unclear for one in error.decisions)
                return None if unclear else next((one for one in reversed(error.decisions) if one.applied), None)
    return None


def cure(family: Family) -> str:
    """What to do about a hole."""
    return f'let ICMP "{_NAMES[family]}" out, or give both interfaces one MTU'
