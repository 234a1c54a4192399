"""Rules about the node itself: what stops connections to a Service whose objects and elements are right (pure)."""

from collections.abc import Iterator

from nodeagent.diagnosis.explain.kernel import ProbeResult, StoppedConnection
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.diagnosis.explain.verdict import Finding, Severity


def faults_of_node(facts: ServiceFacts) -> Iterator[Finding]:
    """Yields the faults of the node that stop connections to every Service."""
    families = {one.family.value for one in facts.frontends}
    for one in facts.node_faults:
        if one.family and one.family not in families:
            continue
        yield Finding(Severity.BROKEN if one.broken else Severity.IMPAIRED, one.what, one.because, one.do)


def stopped_on_the_way(facts: ServiceFacts) -> Iterator[Finding]:
    """Connections that a rule or a route of the node stops; what a rule may be meant to stop is a note, unless this node's own
    connections to the endpoints met just that."""
    for one in facts.stopped:
        share = f" in {one.share} of all cases" if one.share else ""
        meant = one.meant and not _is_met(one, facts)
        severity = Severity.NOTE if meant else Severity.IMPAIRED if one.share else Severity.BROKEN
        yield Finding(severity, f"connections of {one.client} to {one.place} fail{share}", one.because, one.do)


def _is_met(one: StoppedConnection, facts: ServiceFacts) -> bool:
    """Whether no endpoint of its family answers this node, whose own connections it is about."""
    of_family = [each.answer for each in facts.probes if each.endpoint.startswith("[") is one.place.startswith("[")]
    return one.of_node and bool(of_family) and ProbeResult.ACCEPTED not in of_family
