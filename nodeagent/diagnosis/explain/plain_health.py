"""Most Services are healthy, and that is seen without an account of each of their endpoints (pure)."""

from collections.abc import Collection, Mapping

from nodeagent.diagnosis.explain.findings import findings_beside_endpoints
from nodeagent.diagnosis.explain.kernel import ProbeResult
from nodeagent.diagnosis.explain.object_findings import cluster_ips_among
from nodeagent.diagnosis.explain.service_facts import ServiceFacts
from nodeagent.model.frontend import Backend, BackendList, Route
from nodeagent.model.objects import EndpointSlice, ServicePort, is_headless_slice
from nodeagent.proxy.translate.exposed_addresses import is_proxied

_WELL = (ProbeResult.ACCEPTED, ProbeResult.UNKNOWN)


def is_plainly_healthy(facts: ServiceFacts) -> bool:
    """Returns True only if `explain_service` calls the Service healthy, and False if it takes that to find out.

    Every endpoint is ready and in a list, every address has endpoints that the slices have too and that are no addresses of Services,
    and nothing else is wrong: then no rule about endpoints has a finding.
    """
    state = facts.state
    if state is None or not facts.ports or not is_proxied(facts.service):
        return False
    if any(one.answer not in _WELL for one in facts.probes):
        return False
    lists: dict[tuple[str, str], dict[int, Route]] = {}
    for one in state.frontends:
        of_port = lists.setdefault((one.service_port.port, one.service_port.protocol.name), {})
        of_port.update((id(each), each) for each in (one.route, one.short_circuit) if each is not None)
    used = {backend.address for of_port in lists.values() for each in of_port.values() for backend in each.backends}
    return (
        all(_is_in_use(one, used) for one in facts.slices)
        and all(_is_served(port, lists, facts) for port in facts.ports)
        and not any(one.severity for one in findings_beside_endpoints(facts))
    )


def _is_in_use(one: EndpointSlice, used: Collection[str]) -> bool:
    """Returns whether every endpoint of the slice is ready, and its address in a list. used: the addresses in lists."""
    return not is_headless_slice(one) and all(
        (each.conditions is None or each.conditions.ready is not False) and (each.addresses or ("",))[0] in used
        for each in one.endpoints or ()
    )


def _is_served(port: ServicePort, lists: Mapping[tuple[str, str], Mapping[int, Route]], facts: ServiceFacts) -> bool:
    """Returns whether each address of a service port leads to endpoints. lists: by name and protocol of a port."""
    name, protocol = port.name or "", port.protocol or "TCP"
    found = lists.get((name, protocol), {}).values()
    return bool(found) and all(
        bool(each.backends)
        and _is_in_slices(each.backends[0], name, protocol, facts)
        and _are_pods(each.backends, facts)
        for each in found
    )


def _are_pods(backends: BackendList, facts: ServiceFacts) -> bool:
    """Returns whether no endpoint is an address of a Service."""
    places = [(one.address, one.port) for one in backends]
    elsewhere = facts.taken.here.isdisjoint(places) and facts.taken.outside.isdisjoint(places)
    return elsewhere and not cluster_ips_among([address for address, _ in places], facts)


def _is_in_slices(backend: Backend, name: str, protocol: str, facts: ServiceFacts) -> bool:
    return any(
        any(
            each.port == backend.port and each.name == name and (each.protocol or "TCP") == protocol
            for each in one.ports or ()
        )
        and any(endpoint.addresses and endpoint.addresses[0] == backend.address for endpoint in one.endpoints or ())
        for one in facts.slices
    )
