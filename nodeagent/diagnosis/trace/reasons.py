"""Why a journey ended as it did, and what to do: one line each, from the rule that decided (pure)."""

from collections.abc import Sequence
from typing import NamedTuple

from nodeagent.diagnosis.trace.journey import End, Journey, Node
from nodeagent.diagnosis.trace.legacy_rules import TOOLS
from nodeagent.diagnosis.trace.others_walk import REWRITTEN, UNTRACKED
from nodeagent.diagnosis.trace.own_table import OwnTable
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.return_path import Back, ReplyPath
from nodeagent.diagnosis.trace.traveller import Decision
from nodeagent.model.addresses import Family, endpoint_text
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import DISCARD_CHAIN, GUARDED_CHAIN, REFUSE_CHAIN
from nodeagent.proxy.dataplane.program.source_rewriting import NOT_FROM_PODS
from nodeagent.wire.netlink.nf_tables.expressions import FibType, Lookup, Masquerade, Payload, Rule

_SHOWN = 5
_UNCLAIMED = "-unclaimed"
_REPAIR = "nodeagent check, restart the agent, and find out which program writes into its table"
_OPENED = {
    "ufw": "ufw route allow to {0}, or to the range of all pods",
    "Docker": "{1} -I DOCKER-USER -d {0} -j ACCEPT, and the same with -s, or for the range of all pods",
}
"""Firewall → what lets its table forward packets to an endpoint, and the answers."""
_SOURCE_SETS = {
    schema.HAIRPIN: "client and endpoint are the same",
    schema.MASQUERADE_FRONTENDS: "an external address with policy Cluster",
    schema.MASQUERADE_NODEPORTS: "a node port with policy Cluster",
}


class Reason(NamedTuple):
    """Why, and what to do about it; both one clause without a full stop."""

    why: str
    cure: str = ""


def reason_of(question: Question, journey: Journey, own: OwnTable | None) -> Reason:
    """Returns why a journey did not arrive, or not at the Service."""
    if journey.delivery.no_listener:
        return _of_no_listener(question, journey, own)
    if journey.routing:
        return _of_routing(question, journey)
    if journey.end in (End.UNTRANSLATED, End.ONE_WAY) or (journey.delivery.here and passes_service(journey)):
        return _of_what_left(question, journey, own)
    decisive = next((one for one in reversed(journey.decisions) if one.applied), None)
    if decisive is None or own is None or decisive.table != own.name:
        return _of_others(decisive, journey.packet.destination)
    return _of_ours(question, journey, own, decisive)


def unclear_rule(journey: Journey) -> str:
    """Returns the first rule that may stop the packet or its answer, and cannot be evaluated, else an empty text."""
    for step in (*journey.decisions, *(() if journey.answer is None else journey.answer.decisions)):
        if step.unclear and step.may_stop:
            return str(step)
    return ""


def strange_source(journey: Journey, node: Node) -> Reason | None:
    """Says that rules of other programs send answers to an address that is not this node's; None if answers come back."""
    source = journey.packet.new_source
    if not source or journey.route is None or not journey.route.gateway or source in node.local:
        return None
    rule = next((step for step in journey.decisions if step.applied and step.effect == REWRITTEN), None)
    place = "" if rule is None else f" ({rule})"
    return Reason(f"answers are sent to {source}, which is not an address of this node{place}", _of_others(rule).cure)


def passes_service(journey: Journey) -> bool:
    """Returns whether a connection to a Service is delivered to this node without translation: a daemon answers, or no
    program.
    A packet that our own table leaves untracked is a DNS query, which is answered here."""
    return not journey.packet.translated and (journey.packet.tracked or _not_tracked_by_others(journey) is not None)


def is_stopped_by_others(journey: Journey, own: OwnTable | None) -> bool:
    """Returns whether a rule of another program stops the packet or its answer, or keeps it from being translated."""
    if journey.end is End.ONE_WAY:
        return journey.answer is not None and journey.answer.end in (Back.STOPPED, Back.UNTRACKED)
    if journey.delivery.no_listener or journey.end is End.UNTRANSLATED:
        return not journey.packet.translated and _not_tracked_by_others(journey) is not None
    if journey.routing or journey.end not in (End.DROPPED, End.REFUSED):
        return False
    decisive = next((one for one in reversed(journey.decisions) if one.applied), None)
    return decisive is None or own is None or decisive.table != own.name


def _not_tracked_by_others(journey: Journey) -> Decision | None:
    return next((one for one in journey.decisions if one.applied and one.effect == UNTRACKED), None)


def _of_no_listener(question: Question, journey: Journey, own: OwnTable | None) -> Reason:
    place = f"{endpoint_text(journey.packet.destination, journey.packet.port)}/{question.protocol.name}"
    if journey.packet.translated:
        return _of_no_server(question, journey, own, place)
    if own is not None and (service := own.node_port_of(question)):
        return _of_node_port(place, service, own.node_port_addresses)
    if own is not None and own.serves(question):
        return _of_what_left(question, journey, own)
    return Reason(f"no Service has {place}, and no program of this node listens there", "check the port")


def _of_no_server(question: Question, journey: Journey, own: OwnTable | None, place: str) -> Reason:
    """Explains that the endpoint is in this node's own network and no program listens there."""
    why = f"no program of this node listens on {place}"
    if journey.delivery.listener_at:
        return Reason(
            f"{why}, only on {journey.delivery.listener_at}",
            f"let it listen on {journey.packet.destination}, or on all addresses",
        )
    again = Question(question.source, journey.packet.destination, journey.packet.port, question.protocol)
    if own is not None and (service := own.service_of(again)):
        return Reason(
            f"{why}: that is {service} itself, and a connection is translated only once",
            "write the addresses of pods into the EndpointSlice",
        )
    if own is not None and own.is_pod(journey.packet.destination):
        return Reason(
            f"{why}: {journey.packet.destination} is an address of this node, and in the ranges of pods",
            f"find out which program gave it that address (ip address show to {journey.packet.destination}; ip route show table local), or start it",
        )
    return Reason(why, "start it, or correct the Service's targetPort")


def _of_node_port(place: str, service: str, addresses: Sequence[str]) -> Reason:
    """Explains that no node port is answered at this address."""
    shown = ", ".join(addresses[:_SHOWN]) + (", …" if len(addresses) > _SHOWN else "")
    return Reason(
        f"{place} is a node port of {service}, and node ports are answered at {shown or 'no address of this node'} only",
        "connect to one of those, or change traffic.nodePortAddresses",
    )


def _of_routing(question: Question, journey: Journey) -> Reason:
    route = journey.route
    if (
        not (journey.came_by or journey.sent_here)
        and route is not None
        and not journey.decisions
        and journey.packet.destination != question.source
    ):
        return Reason(
            f"the node has no route back to {question.source}" if route.interface == "" else str(route),
            route.cure or f"ip route add {question.source} …, or name the interface it comes in by with --from",
        )
    place = journey.packet.destination
    why = f"no route to {place}" if route is None or not route.reason else f"to {place}: {route.reason}"
    return Reason(why, "" if route is None else route.cure)


def _of_what_left(question: Question, journey: Journey, own: OwnTable | None) -> Reason:
    if journey.end is End.ONE_WAY:
        return _of_one_way(question, journey)
    service = "" if own is None else own.service_of(question)
    rule = _not_tracked_by_others(journey)
    if rule is None:
        what = "it stays here" if journey.delivery.here or journey.delivery.no_listener else "it leaves the node"
        text = f"{what} as it was sent, and {service} is not used"
        last = next((one for one in reversed(journey.decisions) if own and one.applied and one.table == own.name), None)
        if own is not None and last is not None and own.is_foreign(last.chain, last.rule):
            return Reason(f"{text}: {last.hook}: {_foreign(own, last)}", _REPAIR)
        return Reason(text, "nodeagent check")
    why = _of_others(rule)
    return Reason(f"{service} is not used, because the packet is not tracked: {why.why}", why.cure)


def _of_one_way(question: Question, journey: Journey) -> Reason:
    end = endpoint_text(journey.packet.destination, journey.packet.port)
    if journey.answer is not None and journey.answer.lost:
        return _of_answer(question, end, journey.answer, translated=journey.packet.translated)
    cure = "rewrite its source: see that the ranges of pods (--cluster-cidr) are right, or masquerade there"
    if journey.packet.destination == question.source:
        return Reason(f"{end} is the client itself, which takes no packet from its own address", cure)
    if journey.bridged:
        setting = f"bridge-nf-call-{'iptables' if question.family is Family.IPV4 else 'ip6tables'}"
        return Reason(
            f"{end} and the client are both behind the bridge {journey.came_by}, which carries the answer past the rules that "
            f"would translate it back ({setting} is 0, or br_netfilter not loaded)",
            f"modprobe br_netfilter; sysctl -w net.bridge.{setting}=1",
        )
    return Reason(
        f"{end} and the client are both behind {journey.came_by}: the answer does not come by this node, which would "
        "have to translate it back",
        cure,
    )


def _of_answer(question: Question, end: str, answer: ReplyPath, *, translated: bool) -> Reason:
    """Returns what stops the answer on its way to the client."""
    if answer.end is Back.NO_WAY and answer.route is not None:
        text = answer.route.reason or f"no route to {question.source}"
        return Reason(f"the answer of {end} does not come back: to {question.source}: {text}", answer.route.cure)
    if answer.end is Back.OTHER_ZONE:
        made, met = answer.zones
        becomes = "is not translated back" if translated else "gets another source port"
        return Reason(
            f"the answer of {end} {becomes}: it is in zone {met} of connection tracking, and the connection in zone {made}",
            "set the same zone both ways: nft list ruleset | grep zone; iptables-save -t raw",
        )
    why = _of_others(next((one for one in reversed(answer.decisions) if one.applied), None))
    what = "is not translated back, because it is not tracked" if answer.end is Back.UNTRACKED else "is stopped"
    return Reason(f"the answer of {end} {what}: {why.why}", why.cure)


def _of_others(decisive: Decision | None, toward: str = "") -> Reason:
    """Returns the reason if rules of others stop the packet.
    toward: where the packet was going, as the rule saw it; empty: that is no pod's address."""
    if decisive is None:
        return Reason("a chain of another program ended it")
    tool, _, table = decisive.table.partition(" ")
    shown = f"nft -a list chain {decisive.table} {decisive.chain}"
    if tool in TOOLS.values():
        shown = f"{tool} -t {table} -S {decisive.chain}"
    opened = _OPENED.get(decisive.program, "") if decisive.hook == "forward" and toward else ""
    cure = opened.format(toward, "ip6tables" if ":" in toward else "iptables") or f"change that rule: {shown}"
    return Reason(str(decisive), cure)


def _of_ours(question: Question, journey: Journey, own: OwnTable, decisive: Decision) -> Reason:
    service = own.service_of(question)
    place = f"{endpoint_text(question.destination, question.port)}/{question.protocol.name}"
    local_list = _used(journey, own, schema.FRONTENDS_LOCAL_SCOPE, schema.NODEPORTS_LOCAL_SCOPE)
    policy = "externalTrafficPolicy" if local_list else "internalTrafficPolicy"
    if decisive.chain == REFUSE_CHAIN:
        return _of_refusal(question, service, place, own)
    if decisive.chain == DISCARD_CHAIN:
        return Reason(
            f"{service} has no endpoint on this node, and its {policy} is Local",
            f"connect to a node that has one, or set {policy} to Cluster",
        )
    if decisive.chain == GUARDED_CHAIN and decisive.rule == 1:
        return Reason(
            f"{question.source} is in none of the source ranges of {service}",
            "add it to loadBalancerSourceRanges",
        )
    if decisive.chain.endswith(_UNCLAIMED):
        return Reason(f"{question.destination} is in the service range and belongs to no Service", "check the address")
    if own.is_foreign(decisive.chain, decisive.rule):
        return Reason(f"{decisive.hook}: {_foreign(own, decisive)}", _REPAIR)
    return Reason(
        f"elements of {service or place} are missing: chain {decisive.chain}", "nodeagent check, then restart it"
    )


def _foreign(own: OwnTable, rule: Decision) -> str:
    """Describes a rule that another program wrote into our table."""
    return (
        f"{own.name}, chain {rule.chain}: {rule.text} (the agent has no such rule: another program changed its table)"
    )


def _of_refusal(question: Question, service: str, place: str, own: OwnTable) -> Reason:
    """Returns what was refused: a port that the Service does not have, or that has no endpoints, or whose elements are
    missing."""
    if not service:
        return _of_no_such_port(question, place, own)
    if own.picks(question):
        lost = f"{own.name} has lost what leads to its endpoints (map {schema.DISPATCH})"
        return Reason(f"{service} is not used: {lost}", _REPAIR)
    return Reason(
        f"{service} has no endpoints", f"see whether its pods are ready: kubectl get endpointslices ({service})"
    )


def _of_no_such_port(question: Question, place: str, own: OwnTable) -> Reason:
    ports = ", ".join(own.ports_of(question.destination)[:_SHOWN])
    if ports:
        return Reason(
            f"{question.destination} is a ClusterIP that serves nothing at {place}", f"use a port it has: {ports}"
        )
    return Reason(
        f"{question.destination} is a ClusterIP, and no port of it is programmed: elements of table {own.name} are missing, "
        "or its Service has no valid port",
        "nodeagent explain says which; nodeagent diff, then nodeagent run --once, or restart the agent",
    )


def _used(journey: Journey, own: OwnTable, *sets: str) -> bool:
    """Returns whether a rule that decides about the destination found an element in one of these sets."""
    rules = (
        own.rule(one.chain, one.rule)
        for one in journey.decisions
        if one.applied and one.table == own.name and one.hook in ("prerouting", "output")
    )
    return any(isinstance(part, Lookup) and part.set in sets for rule in rules for part in rule)


def scope_of(journey: Journey, own: OwnTable | None) -> str:
    """Returns which list of a frontend was used: `pods and node`, `everyone else`, or empty if it has only one."""
    if own is None:
        return ""
    if _used(journey, own, schema.FRONTENDS_CLUSTER_SCOPE, schema.NODEPORTS_CLUSTER_SCOPE):
        return "pods and node"
    local = _used(journey, own, schema.FRONTENDS_LOCAL_SCOPE, schema.NODEPORTS_LOCAL_SCOPE)
    return "everyone else (policy Local)" if local else ""


def why_rewritten(journey: Journey, own: OwnTable | None) -> str:
    """Returns why the source is rewritten, or that it is not."""
    if not journey.packet.rewritten:
        return "no: the endpoint sees the client's own address" if journey.packet.translated else "no"
    for one in reversed(journey.decisions):
        if own is not None and one.applied and one.table == own.name:
            rule = own.rule(one.chain, one.rule)
            if any(isinstance(part, Masquerade) for part in rule):
                return f"yes: {_source_rule(one.chain, rule)}"
        elif one.applied and one.effect == REWRITTEN:
            return f"yes: by others, {one.table} chain {one.chain}: {one.text}"
    return "yes"


def _source_rule(chain: str, rule: Rule) -> str:
    """Returns the condition of a rule that rewrites the source."""
    sets = {part.set for part in rule if isinstance(part, Lookup)}
    named = next((name for name in _SOURCE_SETS if name in sets), None)
    if named is not None:
        return f"{_SOURCE_SETS[named]} (@{named})"
    if any(isinstance(part, FibType) for part in rule):
        return "an address with policy Local, and the source is an address of this node"
    if chain == NOT_FROM_PODS:
        return "to a ClusterIP, and the client is not a pod"
    from_cluster_ip = any(isinstance(part, Payload) for part in rule)
    return "a ClusterIP is the source, as the node has no address to prefer" if from_cluster_ip else "masqueradeAll"


def arrives(found: tuple[Journey, ...]) -> bool:
    """Returns whether every journey arrives."""
    return all(journey.end is End.ARRIVED for journey in found)
