"""Endpoints (core/v1): addresses of a Service before EndpointSlices. Rules: pkg/apis/core/validation ValidateEndpoints."""

from collections.abc import Iterator

from nodeagent.kinds.description.address_texts import parse_ip
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.formats import (
    IP_EXAMPLE,
    PROTOCOLS,
    dns_label,
    dns_subdomain,
    field_errors,
    qualified_name,
    special_address,
)
from nodeagent.kinds.description.object_rules import port_of_service
from nodeagent.kinds.description.printing import AGE, Column, Printer, first_three, name_and_age
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import FieldError, invalid, required

SHAPES = read_shapes(r"""
EndpointAddress = io.k8s.api.core.v1 atomic : EndpointAddress is a tuple that describes single IP address.
  ip         string! required #1 : The IP of this endpoint. May not be loopback, link-local or link-local multicast.
  hostname   string #3 : The Hostname of this endpoint.
  nodeName   *string #4 : Node hosting this endpoint.
  targetRef  *ObjectReference #2 : Reference to object providing the endpoint.

EndpointsPort = io.k8s.api.core.v1 atomic as=EndpointPort : EndpointPort is a tuple that describes a single port.
  name         string #1 : The name of this port. This must match the 'name' field in the corresponding ServicePort.
  port         int32! required #2 : The port number of the endpoint.
  protocol     string #3 : The IP protocol for this port. Must be UDP, TCP, or SCTP. Default is TCP.
  appProtocol  *string #4 : The application protocol for this port.

EndpointSubset = io.k8s.api.core.v1 : EndpointSubset is a group of addresses with a common set of ports.
  addresses          [EndpointAddress] #1 : IP addresses which offer the related ports that are marked as ready.
  notReadyAddresses  [EndpointAddress] #2 : IP addresses which offer the related ports but are not currently marked as ready.
  ports              [EndpointsPort] #3 : Port numbers available on the related IP addresses.

Endpoints = io.k8s.api.core.v1 : Endpoints is a collection of endpoints that implement the actual service. Deprecated: use EndpointSlice.
  metadata  ObjectMeta #1 : Standard object's metadata.
  subsets   [EndpointSubset] #2 : The set of all endpoints is the union of all subsets.
""")


def default_endpoints(endpoints: Document) -> None:
    """Sets defaults: core/v1 SetDefaults_Endpoints."""
    for subset in endpoints.get("subsets") or []:
        for port in subset.get("ports") or []:
            port.setdefault("protocol", "TCP")


def validate_endpoints(endpoints: Document) -> Iterator[FieldError]:
    """Yields the errors of an Endpoints object, except those of its metadata."""
    for index, subset in enumerate(endpoints.get("subsets") or []):
        field = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(field, "must specify `addresses` or `notReadyAddresses`")
        for part in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(part) or []):
                yield from _address(address, f"{field}.{part}[{position}]")
        ports = subset.get("ports") or []
        for position, port in enumerate(ports):
            at = f"{field}.ports[{position}]"
            yield from port_of_service(port, at, several=len(ports) > 1)
            if port.get("appProtocol"):
                yield from field_errors(f"{at}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))


def _address(address: Document, field: str) -> list[FieldError]:
    text = address.get("ip", "")
    errors = (
        [invalid(f"{field}.ip", text, IP_EXAMPLE)] if parse_ip(text) is None else special_address(text, f"{field}.ip")
    )
    if address.get("hostname"):
        errors += field_errors(f"{field}.hostname", address["hostname"], dns_label(address["hostname"]))
    if address.get("nodeName"):
        errors += field_errors(f"{field}.nodeName", address["nodeName"], dns_subdomain(address["nodeName"]))
    return errors


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    texts = []
    for subset in document.get("subsets") or []:
        for port in subset.get("ports") or [{}]:
            for address in subset.get("addresses") or []:
                ip = address["ip"]
                host = f"[{ip}]" if ":" in ip and port else ip
                texts.append(f"{host}:{port['port']}" if port else ip)
    return [name, first_three(texts), old]


PRINTER = Printer((Column("Endpoints", described_by="subsets"), AGE), _cells)


ROWS = (
    Resource(
        plural="endpoints",
        place="services/endpoints",
        singular="endpoints",
        creates_on_update=True,
        kind="Endpoints",
        struct=SHAPES["Endpoints"],
        words={"subsets.ports.protocol": PROTOCOLS},
        short_names=("ep",),
        printer=PRINTER,
        default=default_endpoints,
        validate=validate_endpoints,
        deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        storage_hash="fWeeMqaN/OA=",
    ),
)
