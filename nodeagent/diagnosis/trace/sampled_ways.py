"""Samples whether connections to Services get through this node: some from the node itself, some from a pod (pure)."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from ipaddress import ip_address

from msgspec import Struct

from nodeagent.diagnosis.trace.journey import End, Journey, Node, journeys
from nodeagent.diagnosis.trace.narrow_ways import BlackHole
from nodeagent.diagnosis.trace.neighbour_discovery import Unfound
from nodeagent.diagnosis.trace.own_table import OwnTable
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.reasons import (
    Reason,
    is_stopped_by_others,
    passes_service,
    reason_of,
    strange_source,
    unclear_rule,
)
from nodeagent.diagnosis.trace.routes import RouteOutcome, Router
from nodeagent.model.addresses import Protocol, pack_address, unpack_address
from nodeagent.proxy.dataplane.image.image import class_of, frontend_key, service_name
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import pick_class

MOST_SERVICES = 16
MOST_PODS = 3
"""The number of pods from which connections are followed, if rules of others stop those of the first."""
MOST_ENDPOINTS = 8
"""Of a Service with more endpoints this many are followed, evenly spread: each endpoint is a journey."""


class LostConnection(Struct, frozen=True):
    """A connection that does not get through, although its Service has an endpoint. service: the service port. certain:
    whether the cause cannot be a rule that keeps clients out on purpose. hook: where a rule stops it; empty if no rule
    does. share: of all such connections that are stopped, of those followed. by_others: whether a rule of another program
    is the cause."""

    question: Question
    service: str
    reason: Reason
    certain: bool
    hook: str = ""
    share: Fraction = Fraction(1)
    by_others: bool = False


class Ways(Struct, frozen=True):
    """Connections from one client. client: in words. asked: how many were judged. stopped: those that do not get
    through. hole: where long packets of a working one are lost. left_out: how many endpoints of these Services were not
    followed. open_hooks: hooks that some connection passed on its way to an endpoint. unclear: a rule that may stop one that
    otherwise arrives, and cannot be evaluated, else empty."""

    client: str
    asked: int
    stopped: tuple[LostConnection, ...] = ()
    hole: BlackHole | Unfound | None = None
    left_out: int = 0
    open_hooks: frozenset[str] = frozenset()
    unclear: str = ""

    @property
    def closed(self) -> bool:
        """Whether there are connections, and none gets through."""
        return bool(self.stopped) and len(self.stopped) == self.asked

    def is_fault(self, one: LostConnection) -> bool:
        """Returns whether its cause is certainly a fault: no rule, or one that lets nothing of this client pass at its
        hook. A rule that stops only some connections may do so on purpose."""
        return one.certain or one.hook not in self.open_hooks


THIS_NODE = "this node"
"""The client that is this node itself, in words."""
Place = tuple[str, Protocol, int]
"""The address, protocol and port to which a client connects."""


def ways_to_services(node: Node, router: Router) -> tuple[Ways, ...]:
    """Returns how connections to Services fare from this node, and from one of its pods if one is known; empty if there
    is nothing to judge. Raises OSError if the kernel reports no routes."""
    places = [] if node.own is None else list(sample_places(node.own))
    return _ways_of_clients(places, node, router, ())


def ways_to_places(places: Sequence[Place], node: Node, router: Router, pods: Sequence[str]) -> tuple[Ways, ...]:
    """Returns the same for these addresses and ports. pods: addresses of pods of this node. Raises OSError."""
    return _ways_of_clients(places, node, router, pods)


def ways_from(client: str, places: Sequence[Place], node: Node, router: Router) -> Ways:
    """Returns how connections from one address to these places fare. Raises OSError."""
    return _ways(client, client, places, node, router, [])


def _ways_of_clients(places: Sequence[Place], node: Node, router: Router, known: Sequence[str]) -> tuple[Ways, ...]:
    own = node.own
    if own is None or not places:
        return ()
    source = _own_address(node, own)
    if not source:
        return ()
    met: list[str] = []
    found = [_ways(THIS_NODE, source, places, node, router, met)]
    if pods := list(dict.fromkeys([*known, *met]))[:MOST_PODS]:
        found.append(_ways_of_pods(pods, places, node, router))
    return tuple(one for one in found if one.asked)


def _ways_of_pods(pods: Sequence[str], places: Sequence[Place], node: Node, router: Router) -> Ways:
    """Judges connections from the first of these pods that rules of others do not stop, else from that with the fewest that they stop: a
    rule against only one pod does not concern Services."""
    found: list[Ways] = []
    for pod in pods:
        found.append(_ways(f"pods of this node (asked for {pod})", pod, places, node, router, []))
        stopped = found[-1].stopped
        if not stopped or not all(one.by_others for one in stopped):
            return found[-1]
    return min(found, key=lambda one: len(one.stopped))


def _ways(client: str, source: str, places: Sequence[Place], node: Node, router: Router, pods: list[str]) -> Ways:
    """Judges a connection from `source` to each of the places. pods: addresses of this node's pods that it meets are
    added."""
    asked, stopped, hole, left_out, unclear = 0, [], None, 0, ""
    passed: set[str] = set()
    for address, protocol, port in places:
        question = Question(source, address, port, protocol)
        found = journeys(question, node, router, most=MOST_ENDPOINTS)
        pods += (one.packet.destination for one in found if _is_pod_here(one, node))
        hole = hole or next((one.hole for one in found if one.hole is not None), None)
        lost = [one for one in found if _is_lost(one, node)]
        if lost or any(one.end is End.ARRIVED for one in found):
            asked += 1
            left_out += max(0, _endpoint_count(node.own, question) - MOST_ENDPOINTS)
        if lost:
            stopped.append(_lost_connection(question, lost, found, node))
        unclear = unclear or next((text for one in found if one not in lost and (text := unclear_rule(one))), "")
        passed.update(*(_hooks_of(one) for one in found if one.endpoint is not None and one not in lost))
    return Ways(client, asked, tuple(stopped), hole, left_out, frozenset(passed), unclear)


def _hooks_of(one: Journey) -> tuple[str, ...]:
    """Returns the hooks that a packet passes on its way to an endpoint."""
    if not one.came_by:
        return ("output", "postrouting", "prerouting", "input") if one.delivery.here else ("output", "postrouting")
    return ("prerouting", "input") if one.delivery.here else ("prerouting", "forward", "postrouting")


def _lost_connection(
    question: Question, lost: Sequence[Journey], found: Sequence[Journey], node: Node
) -> LostConnection:
    first = next((one for one in lost if _is_certain(one)), lost[0])
    service = "" if node.own is None else node.own.service_of(question)
    share = sum((one.probability for one in lost), Fraction()) / sum((one.probability for one in found), Fraction())
    decisive = next((step for step in reversed(first.decisions) if step.applied), None)
    hook = "" if decisive is None else decisive.hook
    strange = strange_source(first, node)  # not certain: the network may bring that address here
    reason = _astray(first, node) or strange or reason_of(question, first, node.own)
    by_others = is_stopped_by_others(first, node.own)
    return LostConnection(question, service, reason, strange is None and _is_certain(first), hook, share, by_others)


def _is_certain(one: Journey) -> bool:
    """Returns whether no rule ends it, or one that only prevents its translation, so that no program answers."""
    if one.routing or one.end in (End.ONE_WAY, End.ARRIVED):
        return not one.delivery.here
    return one.delivery.no_listener or one.end is End.UNTRANSLATED


def _astray(one: Journey, node: Node) -> Reason | None:
    """Returns the reason why a packet to a pod of this node leaves it; None if it does not."""
    own, route, pod = node.own, one.route, one.packet.destination
    if own is None or route is None or route.way is not RouteOutcome.OUT or route.gateway in ("", *node.local):
        return None
    if not (one.packet.translated and own.is_pod(pod) and pod in own.endpoints_here()):
        return None
    why = f"{pod} is on this node, and the route to it leads {route}: its own interface or route is gone"
    return Reason(why, f"see ip route get {pod}, and that its pod runs")


def _endpoint_count(own: OwnTable | None, question: Question) -> int:
    """Returns the number of endpoints of which one is picked."""
    key = frontend_key(question.destination, question.protocol, question.port)
    value = None if own is None else own.image[schema.FRONTENDS].get(key)
    pick = None if value is None else pick_class(class_of(value))
    return 0 if pick is None else pick.count


def sample_places(own: OwnTable, among: Collection[str] = ()) -> Iterator[Place]:
    """Yields (address, protocol, port) of about MOST_SERVICES Services with endpoints, evenly spread over all, or over those that
    `among` names (`namespace/name`)."""
    length = own.family.address_length
    named = {name.encode() for name in among}
    keys = [
        key
        for key, value in own.image[schema.FRONTENDS].items()
        if pick_class(class_of(value)) is not None and (not named or service_name(value) in named)
    ]
    step = max(1, -(-len(keys) // MOST_SERVICES))
    for key in itertools.islice(sorted(keys), 0, None, step):
        protocol = Protocol(key[length])
        yield unpack_address(key[:length]), protocol, int.from_bytes(key[length + 4 : length + 6], "big")


def _own_address(node: Node, own: OwnTable) -> str:
    """Returns an address of the node that is not a Service's; empty if it has none of the family."""
    length = own.family.address_length
    services = {key[:length] for name in (schema.CLUSTER_IPS, schema.FRONTENDS) for key in own.image[name]}
    packed = sorted(map(pack_address, node.local))
    mine = (unpack_address(one) for one in packed if len(one) == length and one not in services)
    return next((one for one in mine if not (ip_address(one).is_loopback or ip_address(one).is_link_local)), "")


def _is_pod_here(one: Journey, node: Node) -> bool:
    """Returns whether it ends at a pod of this node: an address in the pods' ranges that needs no gateway."""
    own, route = node.own, one.route
    if own is None or route is None or route.way is not RouteOutcome.OUT or route.gateway or not one.packet.translated:
        return False
    return own.is_pod(one.packet.destination)


def _is_lost(one: Journey, node: Node) -> bool:
    """Returns whether it does not reach the Service's endpoints, for a reason other than the Service's own state."""
    if one.delivery.no_listener and node.own is not None and node.own.is_pod(one.packet.destination):
        return True
    if one.delivery.here or one.delivery.no_listener:
        return passes_service(one)
    if _astray(one, node) is not None:
        return True
    if one.end is End.ARRIVED:
        return strange_source(one, node) is not None
    return _is_not_ours(one, node)


def _is_not_ours(one: Journey, node: Node) -> bool:
    """Returns whether another program's rule or a route ends it, rather than the Service's own state."""
    if one.routing or one.end in (End.ONE_WAY, End.UNTRANSLATED):
        return True
    decisive = next((step for step in reversed(one.decisions) if step.applied), None)
    return decisive is None or node.own is None or decisive.table != node.own.name
