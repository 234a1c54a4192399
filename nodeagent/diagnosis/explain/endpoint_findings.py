"""Rules about the endpoints of a Service: why a port has none that can be used, and what connections to them met (pure)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from nodeagent.diagnosis.explain.endpoint_reasons import Account, Reason
from nodeagent.diagnosis.explain.kernel import ProbeResult
from nodeagent.diagnosis.explain.object_findings import misplaced, unlabelled
from nodeagent.diagnosis.explain.places import places_of
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.explain.verdict import Finding, Severity
from nodeagent.model.addresses import endpoint_text
from nodeagent.model.frontend import Frontend, FrontendKind, Scope
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import ServicePort
from nodeagent.model.text import none_of_its

_SHOWN = 3
_ALIKE = 0.75
"""Names at least this similar (difflib's ratio) are treated as one name, mistyped."""
_PROBED = {
    ProbeResult.REFUSED: (
        Severity.BROKEN,
        "refuse connections",
        "nobody listens there",
        "compare targetPort with the port that the container listens on, which must be on the pod's address, not on loopback",
    ),
    ProbeResult.UNREACHABLE: (
        Severity.BROKEN,
        "cannot be reached",
        "this node has no way to them",
        "look at the routes to the pods and at the network plugin",
    ),
    ProbeResult.STOPPED: (
        Severity.BROKEN,
        "cannot be reached from this node",
        "a rule of this node stops what it sends to them",
        "nodeagent trace (as root, from this node) names the rule",
    ),
    ProbeResult.NO_PORT: (
        Severity.IMPAIRED,
        "could not be tried",
        "programs of this node have no source port left to connect with",
        "see who holds them: ss -tan; or: sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
    ),
    ProbeResult.SILENT: (
        Severity.IMPAIRED,
        "do not answer this node",
        "nothing came back: the pod hangs, it or its host is gone, or a policy does not allow this node",
        "nodeagent trace (as root, from this node) says whether a neighbour or a rule is why; else look at the pod",
    ),
}
"""By what a connection to an endpoint met: how bad it is where all of them are so, and the words of the finding."""


def no_endpoints(facts: ServiceFacts) -> Finding:
    return Finding(Severity.BROKEN, "it has no endpoints, every connection is refused", *_why_none(facts))


def _why_none(facts: ServiceFacts) -> tuple[str, str]:
    """Returns why a Service has no endpoints, and what to do."""
    namespace, name = facts.key
    if facts.slices:
        commands = f"kubectl -n {namespace} describe service {name}; kubectl -n {namespace} get pods --show-labels"
        return (
            "its EndpointSlices are empty: its selector matches no pod that has an address",
            f"compare the selector with the labels of the pods: {commands}",
        )
    meant = next((one for one in facts.astray if _is_nearly(one, facts.key)), None)
    if meant is not None:
        return (
            f"it has no EndpointSlice, and there is one for a Service {meant} that does not exist",
            f"slices must be in namespace {namespace}, with the label kubernetes.io/service-name: {name}",
        )
    if name_less := unlabelled(facts):
        return (
            f"EndpointSlice {name_less} says of which Service it is by no label",
            f"give that slice the label kubernetes.io/service-name: {name}",
        )
    return (
        "it has no EndpointSlice: it has no selector and nobody wrote a slice for it, or no controller writes them",
        "give it a selector, or write a slice for it; see that the controllers run",
    )


def _is_nearly(other: ObjectKey, key: ObjectKey) -> bool:
    """Returns whether a slice's Service name is probably a mistake for `key`: another namespace, or a similar name."""
    if other.name == key.name:
        return True
    return other.namespace == key.namespace and bool(get_close_matches(other.name, [key.name], cutoff=_ALIKE))


def findings_of_port(facts: ServiceFacts, port: ServicePort, accounts: Sequence[Account]) -> Iterator[Finding]:
    """Yields what prevents that the endpoints of one service port are used."""
    counted = [one for one in accounts if one.reason is not Reason.DUPLICATE]
    frontends = [one for one in facts.frontends if one.service_port.port == (port.name or "")]
    families = list(dict.fromkeys(frontend.family for frontend in frontends))
    where = f"port {port.name or port.port}"
    if not any(one.used for one in counted):
        yield _unused(facts, port, where, counted)
        return
    for family in families:
        if not any(one.used and one.family == family.value for one in counted):
            addresses = places_of([frontend for frontend in frontends if frontend.family is family])
            yield Finding(
                Severity.IMPAIRED,
                f"{addresses} has no endpoint",
                f"none of the endpoints of {where} that can be used is {family.value}",
                f"give the pods {family.value} addresses, or take {family.value} out of ipFamilies",
            )
    yield from _local(facts, frontends, counted, where)
    draining = [one for one in counted if one.cluster is Reason.DRAINING or one.local is Reason.DRAINING]
    if draining:
        yield Finding(
            Severity.IMPAIRED,
            f"{where} has only endpoints that terminate",
            f"none is ready, and {_listed(draining)} still serve",
            "see why no new pod becomes ready: kubectl get pods",
        )


def _unused(facts: ServiceFacts, port: ServicePort, where: str, accounts: Sequence[Account]) -> Finding:
    """Returns that a service port has no usable endpoint, with the reason that most of its endpoints have."""
    reasons = Counter(one.reason for one in accounts)
    reason = max(reasons, key=lambda one: reasons[one]) if reasons else Reason.UNMATCHED_PORT
    those = [one for one in accounts if one.reason is reason]
    what = (
        "drops every connection on this node"
        if reason is Reason.NOT_LOCAL
        else "has no endpoints, every connection is refused"
    )
    return Finding(Severity.BROKEN, f"{where} {what}", *_why_unused(facts, port, reason, those))


def _why_unused(facts: ServiceFacts, port: ServicePort, reason: Reason, those: Sequence[Account]) -> tuple[str, str]:
    """Returns why the endpoints of a service port, of which `those` have the reason, cannot be used, and what to do."""
    namespace, name = facts.key
    count = len({(one.address, one.port) for one in those})
    match reason:
        case Reason.UNMATCHED_PORT:
            wanted = f"{port.name or 'an unnamed port'}/{port.protocol or 'TCP'}"
            has = those[0].detail.removeprefix("it has ") if those else "none at all"
            return f"no slice has a port {wanted} (the slices have {has})", _cure_of_port(port, namespace, name)
        case Reason.NOT_READY:
            because = f"{none_of_its(count, 'endpoint')} ready ({_listed(those)})"
            return because, f"see what their readiness probes say: kubectl -n {namespace} describe pods"
        case Reason.NOT_LOCAL:
            why, do = misplaced(facts, those)
            node = facts.context.node_name
            nobody = f"{none_of_its(count, 'endpoint')} on node {node} ({why or _listed(those)})"
            do = do or f"run one of its pods on {node}, or set internalTrafficPolicy: Cluster"
            return f"internalTrafficPolicy is Local and {nobody}", do
        case Reason.WRONG_FAMILY:
            return _of_family(sorted({one.family for one in those}))
        case Reason.GONE:
            because = f"all of its {count} endpoints terminate and no longer serve"
            because = "its only endpoint terminates and no longer serves" if count == 1 else because
            return because, f"see why no new pod becomes ready: kubectl -n {namespace} get pods"
        case _:
            detail = f" ({those[0].detail})" if those[0].detail else ""
            return f"{_listed(those)}: {reason.value}{detail}", "correct the EndpointSlices of the Service"


def _of_family(families: Sequence[str]) -> tuple[str, str]:
    """Returns why endpoints of these families are not used, and what to do."""
    if families == ["FQDN"]:
        return (
            "its endpoints are names (addressType FQDN), and connections go to addresses",
            "write addresses into the slices, or make it an ExternalName",
        )
    return (
        f"its endpoints are {' and '.join(families)} and the Service has no such address on this node",
        "make ipFamilies of the Service and the addresses of the pods go together",
    )


def _cure_of_port(port: ServicePort, namespace: str, name: str) -> str:
    if isinstance(port.target_port, str):
        return (
            f"targetPort is the name {port.target_port}: give a container port of the pods that name, or correct "
            f"targetPort (kubectl -n {namespace} edit service {name})"
        )
    return "give the ports of the Service and of its EndpointSlices the same names and protocols"


def _local(
    facts: ServiceFacts, frontends: Sequence[Frontend], accounts: Sequence[Account], where: str
) -> Iterator[Finding]:
    """Yields a finding for each traffic policy that is Local although this node has no endpoint."""
    node = facts.context.node_name
    empty = [one for one in frontends if one.route.scope is Scope.LOCAL and not one.route.backends]
    for internal in (True, False):
        those = [one for one in empty if (one.kind is FrontendKind.CLUSTER_IP) is internal]
        if not those:
            continue
        field = "internalTrafficPolicy" if internal else "externalTrafficPolicy"
        who = "from this node and its pods" if internal else "from outside"
        used = [one for one in accounts if one.used]
        count = len({(one.address, one.port) for one in used})
        why, do = misplaced(facts, used)
        yield Finding(
            Severity.BROKEN if internal else Severity.IMPAIRED,
            f"connections {who} to {places_of(those)} are dropped on this node",
            f"{field} is Local and none of the {count} endpoints of {where} is on node {node}"
            + (f" ({why})" if why else ""),
            do
            or f"run one of its pods on {node}, "
            + ("" if internal else "connect to a node that has one, ")
            + f"or set {field}: Cluster",
        )


def silent_endpoints(facts: ServiceFacts, accounts: Sequence[Account]) -> Iterator[Finding]:
    """Yields a finding for each kind of failure that connections from this node to endpoints met."""
    if not facts.probes:
        return
    tried = {one.endpoint for one in facts.probes}
    used = {endpoint_text(one.address, one.port) for one in accounts if one.used and one.port is not None}
    untried = f"; {len(used - tried)} more were not tried" if tried < used else ""
    for answer, (where_all, verb, what, do) in _PROBED.items():
        those = [one for one in facts.probes if one.answer is answer]
        if those:
            names = list(dict.fromkeys(one.endpoint for one in those))
            endpoints = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
            yield Finding(
                where_all if len(those) == len(facts.probes) else Severity.IMPAIRED,
                f"{len(names)} of {len(tried)} endpoints {verb}",
                f"{what}: {endpoints} ({those[0].detail}){untried}{_left_out(facts, accounts)}",
                do,
            )


def _left_out(facts: ServiceFacts, accounts: Sequence[Account]) -> str:
    """Returns that hints exclude further endpoints on this node, in words; empty if they exclude none."""
    those = [one for one in accounts if one.cluster in (Reason.OTHER_ZONE, Reason.OTHER_NODE)]
    if not those:
        return ""
    count = len({(one.address, one.port) for one in those})
    context = facts.context
    here = f"zone {context.zone}" if those[0].cluster is Reason.OTHER_ZONE else f"node {context.node_name}"
    return f"; hints leave {here} only these, and {count} more to others"


def _listed(accounts: Sequence[Account]) -> str:
    """The first few addresses, with their nodes where known, and how many more there are."""
    names = list(dict.fromkeys(f"{one.address}{f' on {one.node}' if one.node else ''}" for one in accounts))
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
