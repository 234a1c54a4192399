"""The rules that say what is wrong with a Service: each looks at the facts and yields what it finds."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network

from nodeagent.diagnosis.explain import object_findings
from nodeagent.diagnosis.explain.endpoint_findings import findings_of_port, no_endpoints, silent_endpoints
from nodeagent.diagnosis.explain.endpoint_reasons import USED, Account
from nodeagent.diagnosis.explain.kernel_findings import kernel_findings
from nodeagent.diagnosis.explain.on_this_node import faults_of_node, stopped_on_the_way
from nodeagent.diagnosis.explain.places import places_of
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.explain.verdict import Finding, Severity
from nodeagent.model.addresses import family_of
from nodeagent.model.frontend import Frontend
from nodeagent.model.objects import ServicePort, key_of
from nodeagent.model.problem import Problem

_FILES = ("file ", "directory ")
_HARMLESS = frozenset(
    {
        "InvalidAffinityTimeout",
        "AffinityIdTaken",
        "AffinityTimeoutRounded",
        "TooManyEndpoints",
        "SourceRangesIneffective",
    }
)
"""Problems that do not prevent any address from leading to endpoints."""
_TOLD_BETTER = frozenset({"AddressConflict"})
_CURES = {
    "FailedToStartServiceHealthcheck": "see who has that port (ss -ltnp), and end it or give the Service another one",
}
"""What to do about a problem, by its reason."""


def findings_of(facts: ServiceFacts, accounts: Sequence[Account]) -> Iterator[Finding]:
    """Yields everything that is wrong with a Service on this node, causes before their consequences.

    accounts: its endpoints (`ServiceFacts.accounts`).
    """
    yield from _causes(facts)
    ports = [one for one in facts.ports if not facts.is_answered_here(one)]
    if any(one.endpoints for one in facts.slices):
        for port in filter(object_findings.is_usable, ports):
            yield from findings_of_port(facts, port, [one for one in accounts if _is_for(one, port)])
    elif ports or not facts.ports:
        yield no_endpoints(facts)
    yield from object_findings.chained(facts, accounts)
    yield from stopped_on_the_way(facts)
    yield from silent_endpoints(facts, accounts)
    yield from _consequences(facts)


def findings_beside_endpoints(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields those of `findings_of` that need no accounts of endpoints."""
    yield from _causes(facts)
    yield from stopped_on_the_way(facts)
    yield from _consequences(facts)


def _causes(facts: ServiceFacts) -> Iterator[Finding]:
    yield from object_findings.misplaced_cluster_ips(facts)
    yield from faults_of_node(facts)
    yield from kernel_findings(facts)
    yield from object_findings.unusable_ports(facts)


def _consequences(facts: ServiceFacts) -> Iterator[Finding]:
    yield from object_findings.node_ports(facts)
    yield from _conflicts(facts)
    yield from _clients(facts)
    yield from _object_problems(facts)
    yield from _sources(facts)


def _is_for(account: Account, port: ServicePort) -> bool:
    return (account.service_port, account.protocol) == (port.name or "", port.protocol or "TCP")


def _conflicts(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields the addresses of this Service that belong to another, because that is older or earlier by name."""
    lost = [one for one in facts.own_problems if one.reason == "AddressConflict"]
    for one in lost:
        where, _, rest = one.detail.partition(" belongs to Service ")
        winner = rest.partition(":")[0]
        yield Finding(
            Severity.IMPAIRED if facts.frontends else Severity.BROKEN,
            f"{where} does not lead to it",
            f"Service {winner} has that address too and goes before it (the older one, then the first by name)",
            f"give one of {facts.key} and {winner} another address",
        )


def _clients(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields the addresses whose loadBalancerSourceRanges exclude the client in question."""
    if not facts.client:
        return
    client = ip_address(facts.client)
    for one in guarded(facts):
        if one.family is family_of(facts.client) and one.allowed_sources is not None:
            if any(client in ip_network(cidr) for cidr in one.allowed_sources):
                continue
            yield Finding(
                Severity.BROKEN,
                f"{facts.client} cannot connect to {places_of([one])}, its connections are dropped",
                f"loadBalancerSourceRanges has only {', '.join(one.allowed_sources) or 'nothing of this family'}",
                f"add a range with {facts.client} to loadBalancerSourceRanges",
            )


def guarded(facts: ServiceFacts) -> list[Frontend]:
    """The frontends that have loadBalancerSourceRanges."""
    return [one for one in facts.frontends if one.allowed_sources is not None]


def _object_problems(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields the agent's problems with the Service and its slices that no other rule explains."""
    for one in facts.own_problems:
        if one.reason in _TOLD_BETTER:
            continue
        harmless = one.reason in _HARMLESS or facts.frontends
        yield Finding(
            Severity.IMPAIRED if harmless else Severity.BROKEN,
            f"part of it is not in effect ({one.reason})",
            one.detail if one.subject == f"Service {facts.key}" else f"{one.subject}: {one.detail}",
            _CURES.get(one.reason, "correct that in the object"),
        )


def _sources(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields problems with the API server, a manifest or the service interface that concern this Service too."""
    for one in facts.problems:
        if one.subject.startswith("API ") or (one.subject.startswith(_FILES) and _is_named(one, facts)):
            yield outdated(one)
        elif one.subject.startswith("service interface") and _concerns(one, facts):
            yield Finding(
                Severity.IMPAIRED,
                "processes of this node may not reach its ClusterIP",
                f"{one.subject}: {one.detail}",
                "see what hinders the agent: nodeagent problems",
            )


def outdated(one: Problem) -> Finding:
    """The finding for a source of objects (API server, manifest) that brings no changes at present."""
    return Finding(
        Severity.IMPAIRED,
        "what this node knows of it may be outdated",
        f"{one.subject}: {one.detail}",
        "" if one.subject.startswith("API ") else "correct the file",
    )


def _is_named(one: Problem, facts: ServiceFacts) -> bool:
    """Returns whether a problem with a file is about an object of the Service."""
    names = (f"Service {facts.key}", *(f"EndpointSlice {key_of(each)}" for each in facts.slices))
    return any(name in one.detail for name in names)


def _concerns(one: Problem, facts: ServiceFacts) -> bool:
    cluster_ips = () if facts.state is None else facts.state.cluster_ips
    return one.reason != "AddressNotProgrammed" or any(address in one.detail for address in cluster_ips)


def used_of(accounts: Sequence[Account]) -> tuple[int, int]:
    """Returns how many addresses of endpoints are used, and how many there are."""
    used = {one.address for one in accounts if {one.cluster, one.local} & USED}
    return len(used), len({one.address for one in accounts})
