"""Finds interfaces with a smaller MTU whose ICMP errors a rule stops: a path MTU black hole (pure).

The node drops what is too long and notifies the sender (ICMP "fragmentation needed", ICMPv6 "packet too big"). A sender
that does not receive this repeats the packet: short packets pass, long ones never do.
"""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.diagnosis.simulator.machine import Machine
from nodeagent.diagnosis.simulator.packet import ICMP, Packet
from nodeagent.diagnosis.trace.others import OtherTable
from nodeagent.diagnosis.trace.others_walk import find_stopping_rule
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.return_path import ReplyPath
from nodeagent.diagnosis.trace.routes import Leg, Route, RouteOutcome, Router
from nodeagent.diagnosis.trace.traveller import Decision, Traveller
from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.proxy.dataplane.program.chain import HookNumber

_ERRORS = {Family.IPV4: ("destination-unreachable", 4), Family.IPV6: ("packet-too-big", 0)}
_NAMES = {Family.IPV4: "fragmentation needed", Family.IPV6: "packet too big"}


class BlackHole(Struct, frozen=True):
    """Long packets that are lost. sender: of these packets. narrow, wide: interfaces; width, wider: their MTUs in
    bytes. rule: the rule that stops the error."""

    sender: str
    narrow: str
    width: int
    wide: str
    wider: int
    rule: Decision

    def __str__(self) -> str:
        return (
            f"packets of {self.sender} above {self.width} bytes are lost: {self.narrow} takes no longer ones ({self.wide}: "
            f"{self.wider}), and the ICMP error about it is stopped: {self.rule}"
        )

    @property
    def cure(self) -> str:
        """What to do about it."""
        return f'let ICMP "{_NAMES[family_of(self.sender)]}" out, or give both interfaces one MTU'


def find_black_hole(
    question: Question,
    request: Traveller,
    route: Route,
    answer: ReplyPath | None,
    others: Sequence[OtherTable],
    router: Router,
) -> BlackHole | None:
    """Returns the black hole in one direction of a forwarded connection, or None. request: as it left. route: by which.

    A host directly behind the narrow interface is assumed to have the same MTU, and to have announced it.
    """
    into, out = router.width(request.iif), router.width(route.interface)
    if route.way is not RouteOutcome.OUT or not request.iif or not into or not out or into == out:
        return None
    of_client = into > out
    if not (route if of_client else router.route(Leg(question.source))).gateway:
        return None
    # The MSS option of the answer limits the client, that of the request the server.
    clamped = (answer is not None and answer.clamped) if of_client else request.clamped
    if clamped and question.protocol is Protocol.TCP:
        return None
    sender = question.source if of_client else request.machine.destination
    rule = _stopping_rule(question, request, sender, others, router)
    if rule is None:
        return None
    narrow, wide = (route.interface, request.iif) if of_client else (request.iif, route.interface)
    return BlackHole(sender, narrow, min(into, out), wide, max(into, out), rule)


def _stopping_rule(
    question: Question, request: Traveller, sender: str, others: Sequence[OtherTable], router: Router
) -> Decision | None:
    """Returns the rule that certainly stops the error; None if it may get through."""
    back = router.route(Leg(sender))
    if back.way is not RouteOutcome.OUT:
        return None
    family = question.family
    packet = Packet(back.source, sender, ICMP[family], iif=None)
    machine = Machine(request.machine.sets, packet, (), sender, 0, 0, request.machine.status)
    error = Traveller(packet, machine, "", back.interface, request=request.packet, error=_ERRORS[family])
    return find_stopping_rule(error, (HookNumber.OUTPUT, HookNumber.POSTROUTING), others)
