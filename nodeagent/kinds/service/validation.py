"""Validation of Services: pkg/apis/core/validation ValidateService, ValidateServiceCreate and ValidateServiceUpdate."""

from collections.abc import Iterator

from nodeagent.kinds.description import formats
from nodeagent.kinds.description.address_texts import BOTH_FAMILIES, parse_cidr, parse_ip
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.object_rules import labels, port_of_service, unchanged
from nodeagent.kinds.description.status import FieldError, duplicate, forbidden, invalid, required, unsupported
from nodeagent.kinds.service.kept_addresses import HEADLESS
from nodeagent.model.addresses import LAST_PORT
from nodeagent.model.objects import LONGEST_AFFINITY_SECONDS

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_POLICIES = ("Cluster", "Local")
_DISTRIBUTIONS = ("PreferClose", "PreferSameNode", "PreferSameZone")
_AFFINITIES = ("ClientIP", "None")
_IP_MODES = ("Proxy", "VIP")

WORDS = {
    "spec.type": TYPES,
    "spec.ports.protocol": formats.PROTOCOLS,
    "spec.sessionAffinity": _AFFINITIES,
    "spec.externalTrafficPolicy": _POLICIES,
    "spec.internalTrafficPolicy": _POLICIES,
    "spec.ipFamilies": FAMILIES,
    "spec.ipFamilyPolicy": _FAMILY_POLICIES,
    "spec.trafficDistribution": _DISTRIBUTIONS,
    "status.loadBalancer.ingress.ipMode": _IP_MODES,
}
"""The accepted values of these fields."""


def validate_service(service: Document) -> Iterator[FieldError]:
    """Yields the errors of a Service with defaults, except those of its metadata."""
    spec = service["spec"]
    yield from _kind(spec)
    yield from _headless(spec)
    yield from _ports(spec)
    yield from labels(spec.get("selector") or {}, "spec.selector")
    yield from _affinity(spec)
    yield from _external_name(spec)
    yield from _cluster_addresses(spec)
    yield from _external_addresses(spec)
    yield from _load_balancer(spec)
    yield from _policies(spec)
    yield from _ingress(service)


def validate_service_update(service: Document, old: Document) -> Iterator[FieldError]:
    """Yields the errors of a change, then those of the new Service."""
    spec, before = service["spec"], old["spec"]
    if _has_cluster_ip(spec) and _has_cluster_ip(before):
        yield from _unchanged_addresses(spec, before)
    yield from _unchanged_health_check(spec, before)
    balancer = spec.get("loadBalancerClass")
    if before.get("type") == spec.get("type") == "LoadBalancer" and before.get("loadBalancerClass") != balancer:
        yield invalid("spec.loadBalancerClass", balancer, "may not change once set")
    yield from validate_service(service)


def _unchanged_addresses(spec: Document, before: Document) -> list[FieldError]:
    errors = (
        unchanged("spec.clusterIP", before.get("clusterIP"), spec.get("clusterIP")) if before.get("clusterIP") else []
    )
    old_ips, new_ips = before.get("clusterIPs") or [], spec.get("clusterIPs") or []
    if old_ips and new_ips and old_ips[0] != new_ips[0]:
        errors.append(invalid("spec.clusterIPs[0]", new_ips, "primary clusterIP can not be unset or changed once set"))
    elif len(old_ips) == len(new_ips) == BOTH_FAMILIES and old_ips[1] != new_ips[1]:
        errors.append(invalid("spec.clusterIPs[1]", new_ips, "may not change once set"))
    old_families, new_families = before.get("ipFamilies") or [], spec.get("ipFamilies") or []
    if old_families and new_families and old_families[0] != new_families[0]:
        errors.append(
            invalid("spec.ipFamilies[0]", new_families, "primary ipFamily can not be unset or changed once set")
        )
    return errors


def _unchanged_health_check(spec: Document, before: Document) -> list[FieldError]:
    kept = all(s.get("type") == "LoadBalancer" and s.get("externalTrafficPolicy") == "Local" for s in (spec, before))
    if not kept or spec.get("healthCheckNodePort", 0) == before.get("healthCheckNodePort", 0):
        return []
    return [forbidden("spec.healthCheckNodePort", "field is immutable")]


def _has_cluster_ip(spec: Document) -> bool:
    return bool(spec.get("type") != "ExternalName")


def _kind(spec: Document) -> list[FieldError]:
    kind = spec.get("type", "")
    if not kind:
        return [required("spec.type")]
    return [] if kind in TYPES else [unsupported("spec.type", kind, TYPES)]


def _headless(spec: Document) -> list[FieldError]:
    kind = spec.get("type")
    if kind not in ("LoadBalancer", "NodePort") or spec.get("clusterIP") != HEADLESS:
        return []
    return [invalid("spec.clusterIPs[0]", HEADLESS, f"may not be set to 'None' for {kind} services")]


def warn_of_service(service: Document) -> list[str]:
    """Returns warnings about what Kubernetes advises against (pkg/api/service/warnings.go)."""
    return ["spec.externalIPs is deprecated"] if service["spec"].get("externalIPs") else []


def _ports(spec: Document) -> Iterator[FieldError]:
    ports: list[Document] = spec.get("ports") or []
    headless = spec.get("clusterIP") == HEADLESS
    if not ports and not headless and spec.get("type") != "ExternalName":
        yield required("spec.ports")
    names: set[str] = set()
    pairs: set[tuple[Json, Json]] = set()
    node_pairs: set[tuple[Json, Json]] = set()
    for index, port in enumerate(ports):
        field = f"spec.ports[{index}]"
        yield from _port(port, field, several=len(ports) > 1, kind=spec.get("type", ""))
        name = port.get("name", "")
        if name:
            yield from [duplicate(f"{field}.name", name)] if name in names else []
            names.add(name)
        pair = (port.get("protocol"), port.get("port"))
        if pair in pairs:
            yield duplicate(field, {"port": port.get("port"), "protocol": port.get("protocol")})
        pairs.add(pair)
        node_pair = (port.get("protocol"), port.get("nodePort"))
        if port.get("nodePort"):
            yield from [duplicate(f"{field}.nodePort", port["nodePort"])] if node_pair in node_pairs else []
            node_pairs.add(node_pair)


def _port(port: Document, field: str, *, several: bool, kind: str) -> list[FieldError]:
    errors = list(port_of_service(port, field, several=several))
    target = port.get("targetPort", 0)
    if isinstance(target, str):
        errors += formats.field_errors(f"{field}.targetPort", target, formats.port_name(target))
    else:
        errors += formats.field_errors(f"{field}.targetPort", target, formats.port_number(target))
    if port.get("appProtocol"):
        errors += formats.field_errors(
            f"{field}.appProtocol", port["appProtocol"], formats.qualified_name(port["appProtocol"])
        )
    node_port = port.get("nodePort", 0)
    if node_port and kind in ("ClusterIP", "ExternalName"):
        errors.append(forbidden(f"{field}.nodePort", f"may not be used when `type` is '{kind}'"))
    elif node_port and not 1 <= node_port <= LAST_PORT:
        errors.append(invalid(f"{field}.nodePort", node_port, formats.PORT_RANGE))
    return errors


def _affinity(spec: Document) -> list[FieldError]:
    affinity = spec.get("sessionAffinity", "")
    field = "spec.sessionAffinityConfig"
    if not affinity:
        return [required("spec.sessionAffinity")]
    if affinity not in _AFFINITIES:
        return [unsupported("spec.sessionAffinity", affinity, _AFFINITIES)]
    config = spec.get("sessionAffinityConfig")
    if affinity == "None":
        why = f"must not be set when session affinity is {affinity}"
        return [forbidden(field, why)] if config is not None else []
    return _affinity_timeout(config, field)


def _affinity_timeout(config: Document | None, field: str) -> list[FieldError]:
    needed = "when session affinity type is ClientIP"
    if config is None:
        return [required(field, needed)]
    timeout = (config.get("clientIP") or {}).get("timeoutSeconds")
    if timeout is None:
        return [required(f"{field}.clientIP", needed)]
    if not 0 < timeout <= LONGEST_AFFINITY_SECONDS:
        why = f"must be greater than 0 and less than {LONGEST_AFFINITY_SECONDS}"
        return [invalid(f"{field}.clientIP.timeoutSeconds", timeout, why)]
    return []


def _external_name(spec: Document) -> list[FieldError]:
    name = spec.get("externalName", "")
    if spec.get("type") != "ExternalName":
        return []
    errors = []
    if spec.get("clusterIP"):
        errors.append(forbidden("spec.clusterIP", "may not be set for ExternalName services"))
    if spec.get("clusterIPs"):
        errors.append(forbidden("spec.clusterIPs", "may not be set for ExternalName services"))
    if not name:
        return [*errors, required("spec.externalName")]
    return errors + formats.field_errors("spec.externalName", name, formats.dns_subdomain(name.removesuffix(".")))


def _cluster_addresses(spec: Document) -> Iterator[FieldError]:
    addresses: list[str] = spec.get("clusterIPs") or []
    if spec.get("type") == "ExternalName":
        return
    first = spec.get("clusterIP", "")
    if first and addresses and first != addresses[0]:
        yield invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    if len(addresses) > BOTH_FAMILIES:
        yield invalid("spec.clusterIPs", addresses, "may only hold up to 2 values")
    for index, address in enumerate(addresses):
        field = f"spec.clusterIPs[{index}]"
        if address == HEADLESS and len(addresses) > 1:
            yield invalid(field, address, "'None' must be the first and only value")
        elif address != HEADLESS and parse_ip(address) is None:
            yield invalid(field, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
    families: list[str] = spec.get("ipFamilies") or []
    yield from (
        unsupported(f"spec.ipFamilies[{index}]", family, FAMILIES)
        for index, family in enumerate(families)
        if family not in FAMILIES
    )
    if len(families) == BOTH_FAMILIES and families[0] == families[1]:
        yield duplicate("spec.ipFamilies[1]", families[1])
    for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
        parsed = parse_ip(address)
        if parsed is not None and f"IPv{parsed.version}" != family:
            yield invalid(
                f"spec.clusterIPs[{index}]",
                address,
                f"expected an {family} value as indicated by `ipFamilies[{index}]`",
            )
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in _FAMILY_POLICIES:
        yield unsupported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES)


def _external_addresses(spec: Document) -> Iterator[FieldError]:
    for index, address in enumerate(spec.get("externalIPs") or []):
        field = f"spec.externalIPs[{index}]"
        if parse_ip(address) is None:
            yield invalid(field, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
        else:
            yield from formats.special_address(address, field)


def _load_balancer(spec: Document) -> Iterator[FieldError]:
    is_balanced = spec.get("type") == "LoadBalancer"
    ranges: list[str] = spec.get("loadBalancerSourceRanges") or []
    field = "spec.loadBalancerSourceRanges"
    if ranges and not is_balanced:
        yield forbidden(field, "may only be used when `type` is 'LoadBalancer'")
    elif is_balanced:
        yield from (
            invalid(f"{field}[{index}]", text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
            for index, text in enumerate(ranges)
            if parse_cidr(text.strip()) is None
        )
    if spec.get("loadBalancerClass") is not None and not is_balanced:
        yield forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'")
    elif spec.get("loadBalancerClass") is not None:
        yield from formats.field_errors(
            "spec.loadBalancerClass", spec["loadBalancerClass"], formats.qualified_name(spec["loadBalancerClass"])
        )
    allocate = spec.get("allocateLoadBalancerNodePorts")
    if is_balanced and allocate is None:
        yield required("spec.allocateLoadBalancerNodePorts")
    elif not is_balanced and allocate is not None:
        why = "may only be used when `type` is 'LoadBalancer'"
        yield forbidden("spec.allocateLoadBalancerNodePorts", why)


def _policies(spec: Document) -> list[FieldError]:
    errors: list[FieldError] = []
    external = spec.get("externalTrafficPolicy", "")
    outside = spec.get("type") in ("NodePort", "LoadBalancer") or bool(spec.get("externalIPs"))
    if external and not outside:
        errors.append(
            invalid("spec.externalTrafficPolicy", external, "may only be set for externally-accessible services")
        )
    elif external and external not in _POLICIES:
        errors.append(unsupported("spec.externalTrafficPolicy", external, _POLICIES))
    elif not external and spec.get("type") in ("NodePort", "LoadBalancer"):
        errors.append(required("spec.externalTrafficPolicy"))
    checks = spec.get("healthCheckNodePort", 0)
    if checks and not (spec.get("type") == "LoadBalancer" and external == "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        errors.append(invalid("spec.healthCheckNodePort", checks, why))
    internal = spec.get("internalTrafficPolicy")
    if internal is None and spec.get("type") in ("ClusterIP", "NodePort", "LoadBalancer"):
        errors.append(required("spec.internalTrafficPolicy"))
    elif internal is not None and internal not in _POLICIES:
        errors.append(unsupported("spec.internalTrafficPolicy", internal, _POLICIES))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        errors.append(unsupported("spec.trafficDistribution", distribution, _DISTRIBUTIONS))
    return errors


def _ingress(service: Document) -> Iterator[FieldError]:
    for index, entry in enumerate(service["status"]["loadBalancer"].get("ingress") or []):
        field = f"status.loadBalancer.ingress[{index}]"
        if service["spec"].get("type") != "LoadBalancer":
            yield forbidden("status.loadBalancer.ingress", 'may only be used when `spec.type` is "LoadBalancer"')
            return
        address = entry.get("ip", "")
        if address and parse_ip(address) is None:
            yield (invalid(f"{field}.ip", address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
        mode = entry.get("ipMode")
        if address and mode is not None and mode not in _IP_MODES:
            yield unsupported(f"{field}.ipMode", mode, _IP_MODES)
        if mode is not None and not address:
            yield forbidden(f"{field}.ipMode", "may not be specified when `ip` is not set")
        if entry.get("hostname"):
            yield from formats.field_errors(
                f"{field}.hostname", entry["hostname"], formats.dns_subdomain(entry["hostname"])
            )
