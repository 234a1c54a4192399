"""Translates one Service and its EndpointSlices into its desired state on this node."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.model import objects
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Frontend, FrontendKind, HealthCheck, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.exposed_addresses import Exposure, exposures, is_proxied
from nodeagent.proxy.translate.protection import without_protected
from nodeagent.proxy.translate.select import Routes, choose_routes, policies_of
from nodeagent.proxy.translate.service_endpoints import Candidate, PortKey, collect_endpoints
from nodeagent.proxy.translate.service_ports import ServicePortSpec, is_port_number, service_ports
from nodeagent.proxy.translate.source_ranges import allowed_sources, source_ranges
from nodeagent.proxy.translate.udp_ports import udp_ports


class _Terms(Struct, frozen=True, gc=False):
    """What all ports of a service share in one family."""

    family: Family
    exposure: Exposure
    affinity_seconds: int | None
    allowed_sources: tuple[str, ...] | None


def translate_service(
    service: objects.Service, slices: Collection[objects.EndpointSlice], context: Context
) -> ServiceState:
    """Returns the desired state of this Service on this node, before conflicts with other Services are resolved (`conflicts`).

    `slices`: those that carry the service's name, in any order. The state of a Service that is not proxied is empty.
    """
    key = objects.key_of(service)
    created = service.metadata.creation_timestamp or ""
    spec = service.spec
    if not is_proxied(service):
        return ServiceState(key, created)
    problems: list[Problem] = []
    exposed = exposures(service, key, context, problems)
    ports = service_ports(service, key, problems)
    endpoints = collect_endpoints(slices, context, problems)
    policies = policies_of(spec)
    affinity = _affinity_seconds(spec, key, problems)
    ranges = source_ranges(spec, key, problems)
    frontends: list[Frontend] = []
    serving: dict[tuple[Family, ServicePortName], frozenset[tuple[str, int]]] = {}
    for family, exposure in exposed.items():
        sources = allowed_sources(ranges, family, exposure.load_balancer_ips, key, context, problems)
        terms = _Terms(family, exposure, affinity, sources)
        for port in ports:
            candidates = endpoints.get((family, port.name.port, port.name.protocol), ())
            frontends.extend(_frontends(port, terms, choose_routes(candidates, policies, context)))
            if port.name.protocol is Protocol.UDP:
                serving[family, port.name] = _endpoints_kept(candidates)
    own = _without_duplicates(without_protected(frontends, key, context.protection, problems), key, problems)
    health_check = _health_check(spec, exposed, endpoints, key, problems) if policies.external_local else None
    return ServiceState(
        key=key,
        created=created,
        cluster_ips=tuple([exposure.cluster_ip for exposure in exposed.values()]),
        frontends=own,
        health_check=health_check,
        udp_ports=udp_ports(own, serving) if serving else (),
        problems=tuple(sorted(set(problems))) if problems else (),
    )


def with_endpoints_of(
    state: ServiceState, service: objects.Service, slices: Collection[objects.EndpointSlice], context: Context
) -> ServiceState | None:
    """Returns what `translate_service` does, made from a state of the same Service in the same context, with other slices.

    None if more than its routes may differ: then the Service has to be translated.
    """
    if state.problems or state.udp_ports or state.health_check is not None:
        return None
    problems: list[Problem] = []
    endpoints = collect_endpoints(slices, context, problems)
    if problems:
        return None
    policies = policies_of(service.spec)
    routes: dict[PortKey, Routes] = {}
    frontends: list[Frontend] = []
    for frontend in state.frontends:
        port = frontend.family, frontend.service_port.port, frontend.protocol
        chosen = routes.get(port)
        if chosen is None:
            chosen = routes[port] = choose_routes(endpoints.get(port, ()), policies, context)
        if frontend.kind is FrontendKind.CLUSTER_IP:
            frontends.append(replace(frontend, route=chosen.internal))
        else:
            frontends.append(replace(frontend, route=chosen.external, short_circuit=chosen.short_circuit))
    return replace(state, frontends=tuple(frontends))


def _frontends(port: ServicePortSpec, terms: _Terms, routes: Routes) -> Iterator[Frontend]:
    """Yields the frontends of a port in order of precedence, for a service that names one address twice: source ranges guard
    the load-balancer address, so it comes before the external IP."""
    exposure = terms.exposure
    yield Frontend(
        FrontendKind.CLUSTER_IP,
        terms.family,
        exposure.cluster_ip,
        port.name.protocol,
        port.port,
        port.name,
        routes.internal,
        affinity_seconds=terms.affinity_seconds,
    )
    for address in exposure.load_balancer_ips:
        yield _external(FrontendKind.LOAD_BALANCER, address, port, terms, routes, terms.allowed_sources)
    for address in exposure.external_ips:
        yield _external(FrontendKind.EXTERNAL_IP, address, port, terms, routes)
    if port.node_port:
        yield _external(FrontendKind.NODE_PORT, None, port, terms, routes)


def _external(
    kind: FrontendKind,
    address: str | None,
    port: ServicePortSpec,
    terms: _Terms,
    routes: Routes,
    sources: tuple[str, ...] | None = None,
) -> Frontend:
    """Returns a frontend under externalTrafficPolicy. Cluster: the endpoint may be on another node, and its answer must come
    back through this one, so the source is rewritten. Local: the client's address is kept."""
    return Frontend(
        kind,
        terms.family,
        address,
        port.name.protocol,
        port.node_port if address is None else port.port,
        port.name,
        routes.external,
        routes.short_circuit,
        routes.short_circuit is None,
        terms.affinity_seconds,
        sources,
    )


def _without_duplicates(frontends: list[Frontend], key: ObjectKey, problems: list[Problem]) -> tuple[Frontend, ...]:
    """Returns the first frontend of each place. If it belongs to another port of the service, that is a mistake and
    reported; the same port at the same address under two names is not."""
    if len(frontends) == 1:
        return tuple(frontends)
    places: dict[tuple[Family, str | None, Protocol, int], Frontend] = {}
    for frontend in frontends:
        first = places.setdefault(frontend.place, frontend)
        if first.service_port != frontend.service_port:
            where = "node port" if frontend.address is None else f"{frontend.address} port"
            detail = (
                f"{where} {frontend.port}/{frontend.protocol.name} is claimed by the ports"
                f" {first.service_port.port!r} and {frontend.service_port.port!r}: the first has it"
            )
            problems.append(Problem(f"Service {key}", "DuplicatePort", detail))
    return tuple(places.values())


def _affinity_seconds(spec: objects.ServiceSpec, key: ObjectKey, problems: list[Problem]) -> int | None:
    if spec.session_affinity != "ClientIP":
        return None
    config = spec.session_affinity_config
    seconds = config.client_ip.timeout_seconds if config and config.client_ip else None
    if seconds is None:
        return objects.DEFAULT_AFFINITY_SECONDS
    if 0 < seconds <= objects.LONGEST_AFFINITY_SECONDS:
        return seconds
    detail = f"{seconds} s is not within 1-{objects.LONGEST_AFFINITY_SECONDS} s: {objects.DEFAULT_AFFINITY_SECONDS} s is used"
    problems.append(Problem(f"Service {key}", "InvalidAffinityTimeout", detail))
    return objects.DEFAULT_AFFINITY_SECONDS


def _endpoints_kept(candidates: Collection[Candidate]) -> frozenset[tuple[str, int]]:
    """Returns address and port of the endpoints whose old flows go on. An endpoint that is ready without serving
    (publishNotReadyAddresses) gets new flows, so it keeps its old ones."""
    backends = [candidate.backend for candidate in candidates if candidate.serving or candidate.ready]
    return frozenset([(backend.address, backend.port) for backend in backends])


def _health_check(
    spec: objects.ServiceSpec,
    exposed: Mapping[Family, Exposure],
    endpoints: Mapping[PortKey, Sequence[Candidate]],
    key: ObjectKey,
    problems: list[Problem],
) -> HealthCheck | None:
    """Counts the distinct addresses of local ready endpoints over all ports (docs/semantics.md 72).

    Terminating endpoints do not count although they may still get traffic: that is how a load balancer drains a node.
    """
    if spec.type != "LoadBalancer" or not spec.health_check_node_port or not exposed:
        return None
    if not is_port_number(spec.health_check_node_port):
        detail = f"healthCheckNodePort {spec.health_check_node_port} is not within 1-65535: nothing answers there"
        problems.append(Problem(f"Service {key}", "InvalidPort", detail))
        return None
    found: dict[Family, set[str]] = {family: set() for family in exposed}
    for (family, _, _), candidates in endpoints.items():
        if family in found:
            found[family].update([c.backend.address for c in candidates if c.ready and c.backend.local])
    return HealthCheck(spec.health_check_node_port, {family: len(addresses) for family, addresses in found.items()})
