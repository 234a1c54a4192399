"""The addresses and ports that a Service has, and those it keeps in an update: pkg/registry/core/service. Pure."""

from nodeagent.kinds.description.address_texts import parse_ip
from nodeagent.kinds.description.documents import Document, Json

HEADLESS = "None"


def carry_over(new: Document, old: Document) -> None:
    """Before an update is validated: keeps allocated values that the client left out, drops those the new type does not use."""
    spec, before = new["spec"], old["spec"]
    _keep_stored_form(spec, before)
    if spec.get("type") == "ExternalName":
        if before.get("type") != "ExternalName":
            for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                if spec.get(name) == before.get(name):
                    spec.pop(name, None)
    elif before.get("type") != "ExternalName":
        _keep_cluster_ip(spec, before)
    if needs_node_ports(spec) and _may_have_node_ports(before):
        _keep_node_ports(spec, before)
    if needs_health_check(spec) and needs_health_check(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort", 0)
    _drop_unused(spec, before)
    sync_first_address(spec, before)


def sync_first_address(spec: Document, before: Document | None = None) -> None:
    """Makes `clusterIP` equal to the first of `clusterIPs`; the one that the client changed wins."""
    first, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    old_first = (before or {}).get("clusterIP", "")
    if first and not addresses:
        spec["clusterIPs"] = [first]
    elif addresses and not first and before is None:
        spec["clusterIP"] = addresses[0]
    elif before is not None and first != old_first and addresses == (before.get("clusterIPs") or []):
        if first:
            spec["clusterIPs"] = [first]
        else:
            spec.pop("clusterIPs", None)


def _keep_stored_form(spec: Document, before: Document) -> None:
    """Keeps the stored form of an address that the client wrote in another form."""
    if _same_address(spec.get("clusterIP"), before.get("clusterIP")):
        spec["clusterIP"] = before["clusterIP"]
    old = before.get("clusterIPs") or []
    for position, address in enumerate((spec.get("clusterIPs") or [])[: len(old)]):
        if _same_address(address, old[position]):
            spec["clusterIPs"][position] = old[position]


def _same_address(one: Json, other: Json) -> bool:
    parsed = parse_ip(one) if isinstance(one, str) else None
    return parsed is not None and isinstance(other, str) and parsed == parse_ip(other)


def _keep_cluster_ip(spec: Document, before: Document) -> None:
    kept = not spec.get("clusterIP") or spec.get("clusterIP") == before.get("clusterIP")
    if before.get("clusterIP") and kept and not spec.get("clusterIPs"):
        spec["clusterIP"] = before["clusterIP"]
        spec["clusterIPs"] = list(before["clusterIPs"])
    elif spec.get("clusterIPs") and not spec.get("clusterIP"):
        spec["clusterIP"] = spec["clusterIPs"][0]
    for name in ("ipFamilies", "ipFamilyPolicy"):
        if not spec.get(name) and before.get(name):
            spec[name] = before[name]


def _keep_node_ports(spec: Document, before: Document) -> None:
    """Gives a port without node port that of the old port with the same name, unless another port requests it."""
    old = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or []}
    asked = {port.get("nodePort") for port in spec.get("ports") or []}
    for port in spec.get("ports") or []:
        kept = old.get(port.get("name", ""), 0)
        if not port.get("nodePort") and kept and kept not in asked:
            port["nodePort"] = kept


def _drop_unused(spec: Document, before: Document) -> None:
    """dropTypeDependentFields: drops values that the new type does not use, unless the client changed them."""
    if _may_have_node_ports(before) and not _may_have_node_ports(spec):
        old = {port.get("nodePort") for port in before.get("ports") or []}
        ports = spec.get("ports") or []
        if all(port["nodePort"] in old for port in ports if port.get("nodePort")):
            for port in ports:
                port.pop("nodePort", None)
    outside = spec.get("type") in ("NodePort", "LoadBalancer") or bool(spec.get("externalIPs"))
    uses = {
        "healthCheckNodePort": needs_health_check(spec),
        "externalTrafficPolicy": outside,
        "allocateLoadBalancerNodePorts": spec.get("type") == "LoadBalancer",
        "loadBalancerClass": spec.get("type") == "LoadBalancer",
        "internalTrafficPolicy": spec.get("type") != "ExternalName",
        "externalName": spec.get("type") == "ExternalName",
    }
    for name, used in uses.items():
        if not used and name in spec and spec[name] == before.get(name):
            del spec[name]


def _may_have_node_ports(spec: Document) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def needs_node_ports(spec: Document) -> bool:
    """Returns whether the Service has node ports (a load balancer may decline them)."""
    if spec.get("type") == "NodePort":
        return True
    return bool(spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def needs_health_check(spec: Document) -> bool:
    """Returns whether the Service has a health check node port."""
    return bool(spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local")


def addresses_of(service: Document | None) -> set[str]:
    """Returns the cluster addresses that a Service has."""
    if service is None or service["spec"].get("type") == "ExternalName":
        return set()
    return {address for address in service["spec"].get("clusterIPs") or [] if address != HEADLESS}


def node_ports_of(service: Document | None) -> set[int]:
    """Returns the node ports that a Service has, including its health check port."""
    if service is None:
        return set()
    spec = service["spec"]
    ports = {int(port["nodePort"]) for port in spec.get("ports") or [] if port.get("nodePort")}
    if spec.get("healthCheckNodePort"):
        ports.add(int(spec["healthCheckNodePort"]))
    return ports
