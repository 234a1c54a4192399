"""Nodes, pods and the kinds that need little: what the controllers and the agent rely on, not everything upstream checks."""

from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.machinery.formats import (
    PROTOCOLS,
    checked,
    data_key,
    dns_label,
    dns_subdomain,
    label_value,
    parse_cidr,
    parse_ip,
    port_name,
    port_number,
    qualified_name,
    unchanged,
)
from nodeagent.controlplane.status import FieldError, duplicate, forbidden, invalid, required, too_long, unsupported

_TAINT_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_IP_EXAMPLE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_DATA_LIMIT = 1024 * 1024


def validate_node(node: Document) -> list[FieldError]:
    """Pod ranges: valid, one per family. Taints: complete."""
    errors: list[FieldError] = []
    ranges: list[str] = node["spec"].get("podCIDRs") or []
    for index, text in enumerate(ranges):
        if parse_cidr(text) is None:
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            errors.append(invalid(f"spec.podCIDRs[{index}]", text, why))
    families = [parsed.version for parsed in map(parse_cidr, ranges) if parsed]
    if len(ranges) > 2 or len(set(families)) != len(families):
        errors.append(invalid("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family"))
    for index, taint in enumerate(node["spec"].get("taints") or []):
        field = f"spec.taints[{index}]"
        errors += checked(f"{field}.key", taint["key"], qualified_name(taint["key"]))
        errors += checked(f"{field}.value", taint.get("value", ""), label_value(taint.get("value", "")))
        if taint["effect"] not in _TAINT_EFFECTS:
            errors.append(unsupported(f"{field}.effect", taint["effect"], _TAINT_EFFECTS))
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(node["status"].get("addresses") or []):
        pair = (address["type"], address["address"])
        errors += [duplicate(f"status.addresses[{index}]", address)] if pair in seen else []
        seen.add(pair)
    return errors


def validate_node_update(node: Document, old: Document) -> list[FieldError]:
    """Pod ranges do not change once set."""
    errors = validate_node(node)
    before = old["spec"].get("podCIDRs")
    if before and before != node["spec"].get("podCIDRs"):
        errors.append(forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'))
    return errors


def validate_pod(pod: Document) -> list[FieldError]:
    """Containers with unique names and valid ports; addresses that are addresses."""
    spec = pod["spec"]
    containers: list[Document] = spec.get("containers") or []
    errors = [] if containers else [required("spec.containers")]
    names: set[str] = set()
    for index, container in enumerate(containers):
        field = f"spec.containers[{index}]"
        name = container.get("name", "")
        errors += checked(f"{field}.name", name, dns_label(name)) if name else [required(f"{field}.name")]
        errors += [duplicate(f"{field}.name", name)] if name and name in names else []
        names.add(name)
        if not container.get("image"):
            errors.append(required(f"{field}.image"))
        errors += _container_ports(
            container.get("ports") or [], f"{field}.ports", shared=spec.get("hostNetwork", False)
        )
    if spec.get("nodeName"):
        errors += checked("spec.nodeName", spec["nodeName"], dns_subdomain(spec["nodeName"]))
    for part in ("hostname", "subdomain"):
        if spec.get(part):
            errors += checked(f"spec.{part}", spec[part], dns_label(spec[part]))
    errors += [
        invalid(f"status.podIPs[{index}]", entry["ip"], _IP_EXAMPLE)
        for index, entry in enumerate(pod["status"].get("podIPs") or [])
        if parse_ip(entry["ip"]) is None
    ]
    return errors


def _container_ports(ports: list[Document], field: str, *, shared: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{field}[{index}]"
        name = port.get("name", "")
        errors += checked(f"{at}.name", name, port_name(name)) if name else []
        errors += [duplicate(f"{at}.name", name)] if name and name in names else []
        names.add(name)
        errors += checked(f"{at}.containerPort", port["containerPort"], port_number(port["containerPort"]))
        if port.get("protocol") not in PROTOCOLS:
            errors.append(unsupported(f"{at}.protocol", port.get("protocol", ""), PROTOCOLS))
        if shared and port.get("hostPort") not in (None, 0, port["containerPort"]):
            why = "must match `hostPort` when `hostNetwork` is true"
            errors.append(invalid(f"{at}.containerPort", port["containerPort"], why))
    return errors


def validate_pod_update(pod: Document, old: Document) -> list[FieldError]:
    """A pod stays what it is: containers' names and ports, and the node once bound."""
    errors = validate_pod(pod)
    spec, before = pod["spec"], old["spec"]
    bound = before.get("nodeName") and before.get("nodeName") != spec.get("nodeName")
    if bound or [_frozen(c) for c in spec["containers"] or []] != [_frozen(c) for c in before["containers"] or []]:
        why = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
            " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        errors.append(forbidden("spec", why))
    return errors


def _frozen(container: Document) -> Document:
    return {name: value for name, value in container.items() if name not in ("image", "resources")}


def validate_data(document: Document) -> list[FieldError]:
    """Keys and size of a ConfigMap's or Secret's data."""
    parts = [document.get("data") or {}, document.get("binaryData") or {}]
    errors = [error for part in parts for key in part for error in checked("data", key, data_key(key))]
    if sum(len(value) for part in parts for value in part.values()) > _DATA_LIMIT:
        errors.append(too_long("data", _DATA_LIMIT))
    return errors


def validate_data_update(document: Document, old: Document) -> list[FieldError]:
    """An immutable one stays as it is; a Secret keeps its type."""
    errors = validate_data(document) + unchanged("type", old.get("type"), document.get("type"))
    if old.get("immutable"):
        if not document.get("immutable"):
            errors.append(forbidden("immutable", "field is immutable when `immutable` is set"))
        errors += [
            forbidden(part, "field is immutable when `immutable` is set")
            for part in ("data", "binaryData")
            if old.get(part) != document.get(part)
        ]
    return errors


def validate_lease(lease: Document) -> list[FieldError]:
    """A duration is positive, a count of transitions not negative."""
    spec = lease["spec"]
    errors = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return errors


def validate_event(event: Document) -> list[FieldError]:
    """An event lives in the namespace of the object it is about (`default` for objects without one)."""
    about = event["involvedObject"].get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    if (about or "default") != namespace and not (not about and namespace == "kube-system"):
        return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
    return []


def validate_service_cidr(found: Document) -> list[FieldError]:
    """One or two networks, canonical, of different families."""
    texts: list[str] = found["spec"].get("cidrs") or []
    if not texts:
        return [required("spec.cidrs", "at least one CIDR required")]
    errors = []
    for index, text in enumerate(texts):
        network = parse_cidr(text)
        if network is None or str(network) != text:
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            errors.append(invalid(f"spec.cidrs[{index}]", text, why))
    families = [network.version for network in map(parse_cidr, texts) if network]
    if len(texts) > 2 or len(set(families)) != len(families):
        errors.append(invalid("spec.cidrs", texts, "may only hold up to 2 values, one for each IP family"))
    return errors


def validate_service_cidr_update(found: Document, old: Document) -> list[FieldError]:
    """Networks do not change."""
    return validate_service_cidr(found) + unchanged("spec.cidrs", old["spec"].get("cidrs"), found["spec"].get("cidrs"))


def validate_ip_address(found: Document) -> list[FieldError]:
    """The name is the address; somebody holds it."""
    name = found["metadata"].get("name", "")
    address = parse_ip(name)
    errors = []
    if address is None or str(address) != name:
        errors.append(invalid("metadata.name", name, "must be a valid IP address in canonical form"))
    parent = found["spec"].get("parentRef")
    if parent is None:
        return [*errors, required("spec.parentRef")]
    return errors + [required(f"spec.parentRef.{key}") for key in ("resource", "name") if not parent.get(key)]


def validate_ip_address_update(found: Document, old: Document) -> list[FieldError]:
    """The holder does not change."""
    before, after = old["spec"].get("parentRef"), found["spec"].get("parentRef")
    return validate_ip_address(found) + unchanged("spec.parentRef", before, after)
