"""Endpoints and EndpointSlices: pkg/apis/core/validation ValidateEndpoints, pkg/apis/discovery/validation."""

from nodeagent.controlplane.documents import Document
from nodeagent.controlplane.machinery.formats import (
    PROTOCOLS,
    checked,
    dns_label,
    dns_subdomain,
    label_value,
    parse_ip,
    port_number,
    qualified_name,
    special_address,
    unchanged,
)
from nodeagent.controlplane.status import FieldError, duplicate, invalid, required, too_long, too_many, unsupported

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MOST_ENDPOINTS = 1000
_MOST_PORTS = 20_000
_MOST_ADDRESSES = 100
_MOST_HINTS = 8
_IP_EXAMPLE = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def validate_endpoints(endpoints: Document) -> list[FieldError]:
    """The errors of an Endpoints object, metadata apart."""
    errors: list[FieldError] = []
    for index, subset in enumerate(endpoints.get("subsets") or []):
        field = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(field, "must specify `addresses` or `notReadyAddresses`"))
        for part in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(part) or []):
                errors += _address(address, f"{field}.{part}[{position}]")
        ports = subset.get("ports") or []
        for position, port in enumerate(ports):
            errors += _subset_port(port, f"{field}.ports[{position}]", several=len(ports) > 1)
    return errors


def _address(address: Document, field: str) -> list[FieldError]:
    text = address.get("ip", "")
    errors = (
        [invalid(f"{field}.ip", text, _IP_EXAMPLE)] if parse_ip(text) is None else special_address(text, f"{field}.ip")
    )
    if address.get("hostname"):
        errors += checked(f"{field}.hostname", address["hostname"], dns_label(address["hostname"]))
    if address.get("nodeName"):
        errors += checked(f"{field}.nodeName", address["nodeName"], dns_subdomain(address["nodeName"]))
    return errors


def _subset_port(port: Document, field: str, *, several: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    name = port.get("name", "")
    if several and not name:
        errors.append(required(f"{field}.name"))
    elif name:
        errors += checked(f"{field}.name", name, dns_label(name))
    errors += checked(f"{field}.port", port["port"], port_number(port["port"]))
    errors += _protocol(port.get("protocol", ""), f"{field}.protocol")
    if port.get("appProtocol"):
        errors += checked(f"{field}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))
    return errors


def _protocol(protocol: str, field: str) -> list[FieldError]:
    if not protocol:
        return [required(field)]
    return [] if protocol in PROTOCOLS else [unsupported(field, protocol, PROTOCOLS)]


def validate_slice(found: Document) -> list[FieldError]:
    """The errors of an EndpointSlice, metadata apart."""
    kind = found.get("addressType", "")
    endpoints, ports = found.get("endpoints") or [], found.get("ports") or []
    if not kind:
        errors = [required("addressType", "address type is a required field")]
    else:
        errors = [] if kind in ADDRESS_TYPES else [unsupported("addressType", kind, ADDRESS_TYPES)]
    if len(endpoints) > _MOST_ENDPOINTS:
        return [*errors, too_many("endpoints", len(endpoints), _MOST_ENDPOINTS)]
    for index, endpoint in enumerate(endpoints):
        errors += _endpoint(endpoint, f"endpoints[{index}]", kind)
    if len(ports) > _MOST_PORTS:
        return [*errors, too_many("ports", len(ports), _MOST_PORTS)]
    return errors + _slice_ports(ports)


def validate_slice_update(found: Document, old: Document) -> list[FieldError]:
    """The errors of a change: the address type stays."""
    return validate_slice(found) + unchanged("addressType", old.get("addressType"), found.get("addressType"))


def _endpoint(endpoint: Document, field: str, kind: str) -> list[FieldError]:
    addresses = endpoint.get("addresses") or []
    errors: list[FieldError] = []
    if not addresses:
        errors.append(required(f"{field}.addresses", "must contain at least 1 address"))
    elif len(addresses) > _MOST_ADDRESSES:
        errors.append(too_many(f"{field}.addresses", len(addresses), _MOST_ADDRESSES))
    for index, address in enumerate(addresses):
        errors += _typed_address(address, f"{field}.addresses[{index}]", kind)
    if endpoint.get("nodeName"):
        errors += checked(f"{field}.nodeName", endpoint["nodeName"], dns_subdomain(endpoint["nodeName"]))
    if endpoint.get("zone"):
        errors += checked(f"{field}.zone", endpoint["zone"], label_value(endpoint["zone"]))
    if endpoint.get("hostname"):
        errors += checked(f"{field}.hostname", endpoint["hostname"], dns_label(endpoint["hostname"]))
    hints = endpoint.get("hints") or {}
    for part in ("forZones", "forNodes"):
        names = [hint["name"] for hint in hints.get(part) or []]
        if len(names) > _MOST_HINTS:
            errors.append(too_many(f"{field}.hints.{part}", len(names), _MOST_HINTS))
        for index, name in enumerate(names):
            at = f"{field}.hints.{part}[{index}].name"
            errors += [duplicate(at, name)] if name in names[:index] else []
            errors += checked(at, name, label_value(name) if name else ["name part must be non-empty"])
    return errors


def _typed_address(address: str, field: str, kind: str) -> list[FieldError]:
    if kind == "FQDN":
        return checked(field, address, dns_subdomain(address.removesuffix(".")))
    parsed = parse_ip(address)
    if parsed is None or f"IPv{parsed.version}" != kind:
        if kind not in ADDRESS_TYPES:
            return []
        example = "10.9.8.7" if kind == "IPv4" else "2001:db8::ffff"
        return [invalid(field, address, f"must be a valid {kind} address, (e.g. {example})")]
    return special_address(address, field)


def _slice_ports(ports: list[Document]) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        field = f"ports[{index}]"
        name = port.get("name") or ""
        if name in names:
            errors.append(duplicate(f"{field}.name", name))
        names.add(name)
        if len(name) > 63:
            errors.append(too_long(f"{field}.name", 63))
        elif name:
            errors += checked(f"{field}.name", name, dns_label(name))
        errors += _protocol(port.get("protocol") or "", f"{field}.protocol")
        if port.get("port") is not None:
            errors += checked(f"{field}.port", port["port"], port_number(port["port"]))
        if port.get("appProtocol"):
            errors += checked(f"{field}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))
    return errors
