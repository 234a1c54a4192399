"""EndpointSlice (discovery.k8s.io/v1): a part of the endpoints of a Service. Rules: pkg/apis/discovery/validation."""

from collections.abc import Iterator

from nodeagent.kinds.description.address_texts import parse_ip
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.formats import (
    LABEL_LONGEST,
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    field_errors,
    label_value,
    qualified_name,
    special_address,
)
from nodeagent.kinds.description.object_rules import transport_protocol, unchanged
from nodeagent.kinds.description.printing import AGE, Column, Printer, first_three, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, duplicate, invalid, required, too_long, too_many, unsupported

SHAPES = read_shapes(r"""
EndpointConditions = io.k8s.api.discovery.v1 : EndpointConditions represents the current condition of an endpoint.
  ready        *bool #1 : ready indicates that this endpoint is ready to receive traffic, according to whatever system is managing the endpoint.
  serving      *bool #2 : serving indicates that this endpoint is able to receive traffic, regardless of terminating.
  terminating  *bool #3 : terminating indicates that this endpoint is terminating.

ForZone = io.k8s.api.discovery.v1 : ForZone provides information about which zones should consume this endpoint.
  name  string! required #1 : name represents the name of the zone.

ForNode = io.k8s.api.discovery.v1 : ForNode provides information about which nodes should consume this endpoint.
  name  string! required #1 : name represents the name of the node.

EndpointHints = io.k8s.api.discovery.v1 : EndpointHints provides hints describing how an endpoint should be consumed.
  forZones  [ForZone] #1 : forZones indicates the zone(s) this endpoint should be consumed by.
  forNodes  [ForNode] #2 : forNodes indicates the node(s) this endpoint should be consumed by.

Endpoint = io.k8s.api.discovery.v1 : Endpoint represents a single logical "backend" implementing a service.
  addresses           [string]! required #1 : addresses of this endpoint.
  conditions          EndpointConditions #2 : conditions contains information about the current status of the endpoint.
  hostname            *string #3 : hostname of this endpoint.
  targetRef           *ObjectReference #4 : targetRef is a reference to a Kubernetes object that represents this endpoint.
  deprecatedTopology  {string} atomic #5 : deprecatedTopology contains topology information part of the v1beta1 API.
  nodeName            *string #6 : nodeName represents the name of the Node hosting this endpoint.
  zone                *string #7 : zone is the name of the Zone this endpoint exists in.
  hints               *EndpointHints #8 : hints contains information associated with how an endpoint should be consumed.

EndpointPort = io.k8s.api.discovery.v1 atomic : EndpointPort represents a Port used by an EndpointSlice.
  name         *string #1 : name represents the name of this port.
  protocol     *string #2 : protocol represents the IP protocol for this port. Must be UDP, TCP, or SCTP. Default is TCP.
  port         *int32 #3 : port represents the port number of the endpoint.
  appProtocol  *string #4 : The application protocol for this port.

EndpointSlice = io.k8s.api.discovery.v1 : EndpointSlice represents a set of service endpoints.
  metadata     ObjectMeta #1 : Standard object's metadata.
  addressType  string! required #4 : addressType specifies the type of address carried by this EndpointSlice: IPv4, IPv6 or FQDN.
  endpoints    [Endpoint]! required #2 : endpoints is a list of unique endpoints in this slice. Each slice may include a maximum of 1000 endpoints.
  ports        [EndpointPort]! #3 : ports specifies the list of network ports exposed by each endpoint in this slice.
""")


ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_MOST_ENDPOINTS = 1000
_MOST_PORTS = 20_000
_MOST_ADDRESSES = 100
_MOST_HINTS = 8


def default_slice(found: Document) -> None:
    """Sets defaults: discovery.k8s.io/v1 SetDefaults_EndpointPort."""
    for port in found.get("ports") or []:
        if port.get("name") is None:
            port["name"] = ""
        if port.get("protocol") is None:
            port["protocol"] = "TCP"


def validate_slice(found: Document) -> Iterator[FieldError]:
    """Yields the errors of an EndpointSlice, except those of its metadata."""
    kind = found.get("addressType", "")
    endpoints, ports = found.get("endpoints") or [], found.get("ports") or []
    if not kind:
        yield required("addressType", "address type is a required field")
    elif kind not in ADDRESS_TYPES:
        yield unsupported("addressType", kind, ADDRESS_TYPES)
    if len(endpoints) > _MOST_ENDPOINTS:
        yield too_many("endpoints", len(endpoints), _MOST_ENDPOINTS)
        return
    for index, endpoint in enumerate(endpoints):
        yield from _endpoint(endpoint, f"endpoints[{index}]", kind)
    if len(ports) > _MOST_PORTS:
        yield too_many("ports", len(ports), _MOST_PORTS)
        return
    yield from _slice_ports(ports)


def validate_slice_update(found: Document, old: Document) -> Iterator[FieldError]:
    """Yields the errors of a change: the address type is immutable."""
    yield from validate_slice(found)
    yield from unchanged("addressType", old.get("addressType"), found.get("addressType"))


def _endpoint(endpoint: Document, field: str, kind: str) -> Iterator[FieldError]:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        yield required(f"{field}.addresses", "must contain at least 1 address")
    elif len(addresses) > _MOST_ADDRESSES:
        yield too_many(f"{field}.addresses", len(addresses), _MOST_ADDRESSES)
    for index, address in enumerate(addresses):
        yield from _typed_address(address, f"{field}.addresses[{index}]", kind)
    if endpoint.get("nodeName"):
        yield from field_errors(f"{field}.nodeName", endpoint["nodeName"], dns_subdomain(endpoint["nodeName"]))
    if endpoint.get("hostname"):
        yield from field_errors(f"{field}.hostname", endpoint["hostname"], dns_label(endpoint["hostname"]))
    hints = endpoint.get("hints") or {}
    for part in ("forZones", "forNodes"):
        names = [hint["name"] for hint in hints.get(part) or []]
        if len(names) > _MOST_HINTS:
            yield too_many(f"{field}.hints.{part}", len(names), _MOST_HINTS)
        seen: set[str] = set()
        for index, name in enumerate(names):
            at = f"{field}.hints.{part}[{index}].name"
            yield from [duplicate(at, name)] if name in seen else []
            seen.add(name)
            yield from field_errors(at, name, label_value(name) if name else ["name part must be non-empty"])


def _typed_address(address: str, field: str, kind: str) -> list[FieldError]:
    if kind == "FQDN":
        return field_errors(field, address, dns_subdomain(address.removesuffix(".")))
    parsed = parse_ip(address)
    if parsed is None or f"IPv{parsed.version}" != kind:
        if kind not in ADDRESS_TYPES:
            return []
        example = "10.9.8.7" if kind == "IPv4" else "2001:db8::ffff"
        return [invalid(field, address, f"must be a valid {kind} address, (e.g. {example})")]
    return special_address(address, field)


def _slice_ports(ports: list[Document]) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        field = f"ports[{index}]"
        name = port.get("name") or ""
        if name in names:
            yield duplicate(f"{field}.name", name)
        names.add(name)
        if len(name) > LABEL_LONGEST:
            yield too_long(f"{field}.name", LABEL_LONGEST)
        elif name:
            yield from field_errors(f"{field}.name", name, dns_label(name))
        yield from transport_protocol(port.get("protocol") or "", f"{field}.protocol")
        if port.get("appProtocol"):
            yield from field_errors(f"{field}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    ports = [str(port.get("port") or "*") for port in document.get("ports") or []]
    addresses = [address for endpoint in document.get("endpoints") or [] for address in endpoint.get("addresses") or []]
    return [
        name,
        document.get("addressType"),
        first_three(ports) if ports else "<unset>",
        first_three(addresses) if addresses else "<unset>",
        old,
    ]


PRINTER = Printer(
    (
        Column("AddressType", described_by="addressType"),
        Column("Ports", described_by="ports"),
        Column("Endpoints", described_by="endpoints"),
        AGE,
    ),
    _cells,
)


ROWS = (
    Resource(
        group="discovery.k8s.io",
        plural="endpointslices",
        singular="endpointslice",
        kind="EndpointSlice",
        struct=SHAPES["EndpointSlice"],
        words={"addressType": ADDRESS_TYPES, "ports.protocol": PROTOCOLS},
        printer=PRINTER,
        default=default_slice,
        validate=validate_slice,
        validate_update=validate_slice_update,
        generation_of=("addressType", "endpoints", "ports", "metadata.labels"),
        storage_hash="qgS0xkrxYAI=",
    ),
)
