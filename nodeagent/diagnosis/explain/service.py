"""A Service on this node, judged: the verdict first, then everything it follows from, in the order of the flow."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nodeagent.diagnosis.explain import object_findings
from nodeagent.diagnosis.explain.endpoint_reasons import Account
from nodeagent.diagnosis.explain.findings import findings_of, guarded, used_of
from nodeagent.diagnosis.explain.kernel import KernelService, Probe
from nodeagent.diagnosis.explain.on_this_node import stopped_on_the_way
from nodeagent.diagnosis.explain.places import place_of
from nodeagent.diagnosis.explain.reservations import reservations
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.explain.verdict import Finding, Severity, worst_first
from nodeagent.model.frontend import Frontend, FrontendKind, Scope
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Service, is_of_other_proxy, key_of
from nodeagent.model.problem import Problem
from nodeagent.model.text import did_you_mean
from nodeagent.model.unwatched import UnwatchedService
from nodeagent.proxy.translate.exposed_addresses import is_proxied

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
"""What the API server takes as a name (RFC 1123); manifests may have others."""


class ServedAddress(Struct, frozen=True):
    """An address of the Service on this node. policy: its traffic policy, in words. without: what happens to connections if
    there is no endpoint."""

    kind: str
    place: str
    service_port: str
    policy: str
    endpoints: int
    without: str
    affinity_seconds: int | None
    sources: tuple[str, ...] | None
    keeps_source: bool


class SliceFound(Struct, frozen=True):
    """An EndpointSlice of the Service."""

    name: str
    family: str
    ports: tuple[str, ...]
    endpoints: int


class Explanation(Struct, frozen=True):
    """All about a Service. verdict: the first line; of an unhealthy Service it is the first finding. findings: worst first."""

    verdict: str
    healthy: bool
    severity: str
    service: str
    findings: tuple[Finding, ...] = ()
    spec: dict[str, object] = {}
    slices: tuple[SliceFound, ...] = ()
    endpoints: tuple[Account, ...] = ()
    addresses: tuple[ServedAddress, ...] = ()
    kernel: tuple[KernelService, ...] | None = None
    probes: tuple[Probe, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def rank(self) -> Severity:
        """The severity as a value that can be compared."""
        return Severity[self.severity.upper()]


NOT_PROGRAMMED = Finding(
    Severity.BROKEN,
    "it is not programmed yet",
    "the agent has received it and has not worked it in",
    "ask again in a second; if it stays: nodeagent problems, nodeagent journal",
)


def explain_service(facts: ServiceFacts) -> Explanation:
    """Explains a Service that exists."""
    if is_of_other_proxy(facts.service):
        finding = object_findings.of_other_proxy(facts.service)
        return Explanation(str(finding), False, "broken", str(facts.key), (finding,), spec_of(facts.service))
    if not is_proxied(facts.service):
        return _not_proxied(facts)
    if facts.port and not facts.ports:
        return _no_such_port(facts)
    accounts = facts.accounts()
    findings = worst_first(findings_of(facts, accounts))
    if facts.state is None and facts.ports and not any(one.severity for one in findings):
        findings = (NOT_PROGRAMMED, *findings)
    worst = findings[0].severity if findings else Severity.NOTE
    return Explanation(
        verdict=str(findings[0]) if worst else _healthy(facts, accounts),
        healthy=not worst,
        severity=worst.name.lower(),
        service=str(facts.key),
        findings=findings,
        spec=spec_of(facts.service),
        slices=tuple(_slices(facts)),
        endpoints=accounts,
        addresses=tuple(_address(one) for one in facts.frontends),
        kernel=None if facts.kernel is None else tuple(facts.kernel),
        probes=tuple(facts.probes),
        problems=tuple(facts.own_problems),
    )


def explain_missing(
    key: ObjectKey,
    known: Iterable[ObjectKey],
    problems: Sequence[Problem],
    unwatched: UnwatchedService | None = None,
) -> Explanation:
    """Explains a Service that the agent does not know. unwatched: what the source of its objects has of that name."""
    because = (
        "the source of its objects has no Service of that name in that namespace"
        if unwatched is not None and not unwatched.silence
        else "neither the API server nor the manifests have it, it is headless, or another proxy is to serve it"
        + (f" ({unwatched.silence})" if unwatched is not None else "")
    )
    names = [str(one) for one in known]
    own = [one for one in problems if one.subject == f"Service {key}"]
    elsewhere = sorted(name for name in names if name.endswith(f"/{key.name}"))
    hint = f" (there is {', '.join(elsewhere[:3])})" if elsewhere else _meant(str(key), names)
    finding = (
        Finding(Severity.BROKEN, f"Service {key} is not in effect", str(own[0]), "correct that in the object")
        if own
        else Finding(
            Severity.BROKEN,
            f"there is no Service {key}{hint}",
            "no Service can have that name: small letters, digits, dashes and dots, at most 253, a letter or digit at both ends",
            "write the name as kubectl get services --all-namespaces shows it",
        )
        if not (_NAME.fullmatch(key.name) and _NAME.fullmatch(key.namespace))
        else Finding(
            Severity.BROKEN,
            f"there is no Service {key}{hint}",
            because,
            "kubectl get services --all-namespaces",
        )
    )
    return Explanation(str(finding), False, "broken", str(key), (finding,), problems=tuple(own))


def _meant(word: str, known: Iterable[str]) -> str:
    """Returns the suggestion in brackets, because the sentence goes on, or an empty text."""
    hint = did_you_mean(word, known).removeprefix("; ")
    return f" ({hint})" if hint else ""


def spec_of(service: Service) -> dict[str, object]:
    """Returns the fields of the object that matter, by their names in the API; leaves out those that are not set."""
    spec = service.spec
    ports = [
        f"{port.name + ' ' if port.name else ''}{port.port}/{port.protocol or 'TCP'}"
        + (f" -> {port.target_port}" if port.target_port is not None else "")
        + (f", node port {port.node_port}" if port.node_port else "")
        for port in spec.ports or ()
    ]
    told: dict[str, object] = {
        "type": spec.type or "ClusterIP",
        "clusterIPs": list(spec.cluster_ips or (spec.cluster_ip,)),
        "ports": ports,
        "internalTrafficPolicy": spec.internal_traffic_policy or "Cluster",
        "externalTrafficPolicy": spec.external_traffic_policy,
        "sessionAffinity": spec.session_affinity or "None",
        "externalIPs": list(spec.external_ips or ()),
        "loadBalancerSourceRanges": list(spec.load_balancer_source_ranges or ()),
    }
    return {name: value for name, value in told.items() if value not in (None, [])}


def _healthy(facts: ServiceFacts, accounts: Sequence[Account]) -> str:
    used, total = used_of(accounts)
    tried = len({one.endpoint for one in facts.probes})
    text = f"healthy: {used} of {total} endpoints used" + (f", {tried} of them were tried" if 0 < tried < used else "")
    if facts.ports and all(map(facts.is_answered_here, facts.ports)):
        text = "healthy: this node answers its names itself"
    for one in guarded(facts)[:1]:
        text += f"; {place_of(one)} is only for {', '.join((one.allowed_sources or ())[:3])}"
    for address in object_findings.left_to_balancer(facts.service)[:1]:
        text += f"; {address} is answered by the load balancer itself (ipMode Proxy)"
    if object_findings.pending(facts.service):
        text += "; nobody has given it a load-balancer address yet"
    for stopped in list(stopped_on_the_way(facts))[:1]:
        text += f"; {stopped.what}, perhaps on purpose: {stopped.because}"
    return text + reservations(facts.problems, facts.unseen)


def _not_proxied(facts: ServiceFacts) -> Explanation:
    spec = facts.service.spec
    finding = None
    if spec.type == "ExternalName":
        finding = object_findings.of_external_name(facts.service)
        verdict = f"healthy: nothing to program, it is another name for {spec.external_name}"
    elif spec.cluster_ip == "None":
        finding = object_findings.of_headless(facts.service, facts.slices)
        verdict = "healthy: nothing to program, it is headless: its name leads to the endpoints themselves"
    else:
        finding = Finding(
            Severity.BROKEN,
            "it has no ClusterIP",
            "nobody has allocated one yet",
            "see that the API server allocates addresses: kubectl get service",
        )
        verdict = ""
    if finding is not None:
        return Explanation(str(finding), False, "broken", str(facts.key), (finding,), spec_of(facts.service))
    return Explanation(verdict, True, "note", str(facts.key), spec=spec_of(facts.service))


def _no_such_port(facts: ServiceFacts) -> Explanation:
    ports = [one.name or str(one.port) for one in facts.service.spec.ports or ()]
    finding = Finding(
        Severity.BROKEN,
        f"Service {facts.key} has no port {facts.port}{_meant(facts.port, ports)}",
        f"its ports are {', '.join(ports) or 'none'}",
        f"ask for one of them: nodeagent explain {facts.key}:{ports[0] if ports else 'PORT'}",
    )
    return Explanation(str(finding), False, "broken", str(facts.key), (finding,), spec_of(facts.service))


def _slices(facts: ServiceFacts) -> Iterable[SliceFound]:
    for one in facts.slices:
        ports = tuple(
            f"{port.name + ' ' if port.name else ''}{port.port}/{port.protocol or 'TCP'}" for port in one.ports or ()
        )
        yield SliceFound(str(key_of(one)), one.address_type, ports, len(one.endpoints or ()))


def _address(one: Frontend) -> ServedAddress:
    return ServedAddress(
        kind=one.kind.value,
        place=place_of(one),
        service_port=one.service_port.port,
        policy=_policy(one),
        endpoints=len(one.route.backends),
        without=one.route.otherwise.value,
        affinity_seconds=one.affinity_seconds,
        sources=one.allowed_sources,
        keeps_source=not one.masquerade and one.kind is not FrontendKind.CLUSTER_IP,
    )


def _policy(one: Frontend) -> str:
    if one.route.scope is Scope.CLUSTER:
        return "Cluster"
    if one.short_circuit is None:
        return "Local"
    return f"Local; {len(one.short_circuit.backends)} for pods and this node"
