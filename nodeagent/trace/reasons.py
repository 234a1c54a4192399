"""Why a journey ended as it did, and what to do: one line each, out of the rule that decided (pure)."""

from typing import NamedTuple

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.classes import (
    DISCARD_CHAIN,
    GUARDED_CHAIN,
    REFUSE_CHAIN,
)
from nodeagent.model.addresses import endpoint_text
from nodeagent.netlink.nf_tables.expressions import FibType, Lookup, Masquerade, Meta, MetaKey, Rule
from nodeagent.trace.journey import End, Journey
from nodeagent.trace.own_table import OwnTable
from nodeagent.trace.question import Question
from nodeagent.trace.traveller import Decision

_UNCLAIMED = "-unclaimed"
_REWRITTEN = "source is rewritten"
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
    """Why a journey did not arrive."""
    if journey.unheard:
        place = f"{endpoint_text(journey.destination, journey.port)}/{question.protocol.name}"
        if not journey.translated:
            return Reason(f"no Service has {place}, and no program of this node listens there", "check the port")
        return Reason(f"no program of this node listens on {place}", "start it, or correct the Service's targetPort")
    if journey.routing:
        return _of_routing(question, journey)
    decisive = next((one for one in reversed(journey.decisions) if one.applied), None)
    if decisive is None or own is None or decisive.table != own.name:
        return _of_others(decisive)
    return _of_ours(question, journey, own, decisive)


def _of_routing(question: Question, journey: Journey) -> Reason:
    route = journey.route
    if not journey.came_by and route is not None and not journey.decisions and journey.destination != question.source:
        return Reason(
            f"the node has no route back to {question.source}" if route.interface == "" else str(route),
            route.cure or f"ip route add {question.source} …, or name the interface it comes in by with --from",
        )
    place = journey.destination
    why = f"no route to {place}" if route is None or not route.reason else f"to {place}: {route.reason}"
    return Reason(why, "" if route is None else route.cure)


def _of_others(decisive: Decision | None) -> Reason:
    if decisive is None:
        return Reason("a chain of others ended it")
    return Reason(
        f"{decisive.hook}: {decisive.table}, chain {decisive.chain}: {decisive.text}",
        f"change that rule: nft -a list chain {decisive.table} {decisive.chain}",
    )


def _of_ours(question: Question, journey: Journey, own: OwnTable, decisive: Decision) -> Reason:
    service = own.service_of(question)
    place = f"{endpoint_text(question.destination, question.port)}/{question.protocol.name}"
    local_list = _used(journey, own, schema.FRONTENDS_LOCAL_SCOPE, schema.NODEPORTS_LOCAL_SCOPE)
    policy = "externalTrafficPolicy" if local_list else "internalTrafficPolicy"
    if decisive.chain == REFUSE_CHAIN and service:
        return Reason(
            f"{service} has no endpoints", f"see whether its pods are ready: kubectl get endpointslices ({service})"
        )
    if decisive.chain == REFUSE_CHAIN:
        return Reason(f"{question.destination} is a ClusterIP that serves nothing at {place}", "use a port it has")
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
    return Reason(
        f"elements of {service or place} are missing: chain {decisive.chain}", "nodeagent check, then restart it"
    )


def _used(journey: Journey, own: OwnTable, *sets: str) -> bool:
    """Whether a rule that decides about the destination found something in one of these sets."""
    rules = (
        own.rule(one.chain, one.rule)
        for one in journey.decisions
        if one.applied and one.table == own.name and one.hook in ("prerouting", "output")
    )
    return any(isinstance(part, Lookup) and part.set in sets for rule in rules for part in rule)


def scope_of(journey: Journey, own: OwnTable | None) -> str:
    """Which of a frontend's lists was used: `pods and node`, `everyone else`, or empty where it has one for all."""
    if own is None:
        return ""
    if _used(journey, own, schema.FRONTENDS_CLUSTER_SCOPE, schema.NODEPORTS_CLUSTER_SCOPE):
        return "pods and node"
    local = _used(journey, own, schema.FRONTENDS_LOCAL_SCOPE, schema.NODEPORTS_LOCAL_SCOPE)
    return "everyone else (policy Local)" if local else ""


def why_rewritten(journey: Journey, own: OwnTable | None) -> str:
    """Why the source is rewritten, or that it is not."""
    if not journey.rewritten:
        return "no: the endpoint sees the client's own address" if journey.translated else "no"
    for one in reversed(journey.decisions):
        if own is not None and one.applied and one.table == own.name:
            rule = own.rule(one.chain, one.rule)
            if any(isinstance(part, Masquerade) for part in rule):
                return f"yes: {_source_rule(rule)}"
        elif one.applied and one.effect == _REWRITTEN:
            return f"yes: by others, {one.table} chain {one.chain}: {one.text}"
    return "yes"


def _source_rule(rule: Rule) -> str:
    """What a rule that rewrites the source asks for."""
    sets = {part.set for part in rule if isinstance(part, Lookup)}
    named = next((name for name in _SOURCE_SETS if name in sets), None)
    if named is not None:
        return f"{_SOURCE_SETS[named]} (@{named})"
    if any(isinstance(part, FibType) for part in rule):
        return "an address with policy Local, and the source is an address of this node"
    if schema.POD_CIDRS in sets or any(isinstance(part, Meta) and part.key is MetaKey.IIFNAME for part in rule):
        return "to a ClusterIP, and the client is no pod"
    if any(isinstance(part, Meta) and part.key is MetaKey.IIF for part in rule):
        return "to a ClusterIP, and this node is the client"
    return "masqueradeAll"


def arrives(found: tuple[Journey, ...]) -> bool:
    """Whether every journey does."""
    return all(journey.end is End.ARRIVED for journey in found)
