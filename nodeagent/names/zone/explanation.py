"""Explains why a name has its records: the object, its slices, and which endpoints are used. Pure; lines for a person."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from nodeagent.model.addresses import parse_address
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Endpoint, EndpointSlice
from nodeagent.model.snapshot import Snapshot
from nodeagent.names.zone.lookup import Lookup
from nodeagent.names.zone.reverse import IN_ADDR, IP6, address_of, pod_address
from nodeagent.names.zone.service_names import host_of, is_label, names_of
from nodeagent.names.zone.unservable import faults_of
from nodeagent.wire.dns import domain_names

MOST_NAMED = 8
"""How many existing names are listed as alternatives."""
ENDPOINT_LABELS, PORT_LABELS = 1, 2
"""Labels before a Service's name: an endpoint; a port and a protocol."""


class NameParts(NamedTuple):
    """The labels of a name in a cluster's zone. below: those before the Service's name."""

    tree: str
    namespace: str = ""
    name: str = ""
    below: tuple[str, ...] = ()


def parts_of(name: bytes, zone: bytes) -> NameParts:
    """Returns the parts of a name (lower case) in a cluster's zone; missing parts are empty."""
    labels = [label.decode("latin-1") for label in domain_names.labels_of(name[: len(name) - len(zone)] + b"\0")]
    padded = [*reversed(labels), "", "", ""]
    return NameParts(padded[0], padded[1], padded[2], tuple(labels[:-3]))


def explain(snapshot: Snapshot, lookup: Lookup, zones: tuple[str, ...], name: bytes) -> Iterator[str]:
    """Yields lines that say why a name (lower case) is answered as it is. lookup: of the same objects."""
    zone = lookup.zone_of(name)
    if zone is None:
        yield f"{domain_names.to_text(name)} is in none of our zones ({', '.join(zones)}): asked upstream"
    elif zone in (IN_ADDR, IP6):
        yield from _explain_reverse(lookup, name, zone)
    else:
        parts = parts_of(name, zone)
        if parts.tree == "svc" and parts.name:
            yield from _explain_service(snapshot, parts, zones)
        elif parts.tree == "pod" and parts.name:
            yield from _explain_pod(lookup, parts)
        elif parts.tree in ("svc", "pod") and parts.namespace:
            there = lookup.index.has_namespace(parts.namespace.encode("latin-1"))
            yield f"namespace {parts.namespace} {'exists: its name has no records' if there else 'does not exist'}"
        else:
            yield "a name of the zone itself: Services are at NAME.NAMESPACE.svc, pods at ADDRESS.NAMESPACE.pod"


def _explain_service(snapshot: Snapshot, parts: NameParts, zones: tuple[str, ...]) -> Iterator[str]:
    key = ObjectKey(parts.namespace, parts.name)
    service = snapshot.services.get(key)
    if service is None:
        yield f"there is no Service {key}"
        yield from _near_misses(snapshot.services, key)
        return
    slices = snapshot.slices_of(key)
    made = names_of(service, slices)
    for fault in faults_of(service, slices, made, zones):
        yield f"problem: {fault.reason}: {fault.detail}"
    if service.spec.type == "ExternalName":
        below = "; nothing is below it" if parts.below else ""
        yield f"Service {key} (ExternalName): a CNAME to {service.spec.external_name}, which is then resolved{below}"
        return
    if made.headless:
        yield f"Service {key} (headless): the ready endpoints of its EndpointSlices"
        if not slices:
            yield f"  no EndpointSlice carries the label kubernetes.io/service-name={key.name}: NXDOMAIN"
    else:
        yield f"Service {key}: its ClusterIPs {', '.join(made.cluster_ips) or '(none yet)'}; its endpoints do not matter"
        if len(parts.below) == PORT_LABELS:
            ports = ", ".join(f"_{port.name}._{port.protocol}" for port in made.ports if port.name)
            yield f"  its named ports: {ports or 'none'}"
    if made.headless or len(parts.below) == ENDPOINT_LABELS:
        for one in slices:
            yield from _explain_slice(one, parts, by_port=made.headless and len(parts.below) == PORT_LABELS)


def _near_misses(services: Collection[ObjectKey], wanted: ObjectKey) -> Iterator[str]:
    elsewhere = sorted(key.namespace for key in services if key.name == wanted.name)[:MOST_NAMED]
    here = sorted(key.name for key in services if key.namespace == wanted.namespace)
    if elsewhere:
        yield f"  {wanted.name} is in other namespaces: {', '.join(elsewhere)}"
    if not here:
        yield f"  no Service is in namespace {wanted.namespace}"
    elif len(here) > MOST_NAMED:
        yield f"  namespace {wanted.namespace} has {len(here)} others"
    else:
        yield f"  namespace {wanted.namespace} has: {', '.join(here)}"


def _explain_slice(one: EndpointSlice, parts: NameParts, *, by_port: bool) -> Iterator[str]:
    ports = ", ".join(f"{port.name or '(no name)'} {port.protocol or 'TCP'} {port.port}" for port in one.ports or ())
    yield f"EndpointSlice {one.metadata.namespace}/{one.metadata.name} ({one.address_type}; ports: {ports or 'none'})"
    if one.address_type == "FQDN":
        yield "  left out: its addresses are host names"
        return
    if by_port:
        wanted = (parts.below[0].removeprefix("_"), parts.below[1].removeprefix("_"))
        if wanted not in {((port.name or "").lower(), (port.protocol or "TCP").lower()) for port in one.ports or ()}:
            yield f"  left out: no port {wanted[0]} by {wanted[1]}"
            return
    for endpoint in one.endpoints or ():
        for address in endpoint.addresses or ():
            yield f"  {_judge(endpoint, address, parts)}"


def _judge(endpoint: Endpoint, address: str, parts: NameParts) -> str:
    """Returns a line that says whether an endpoint is used for the name, and if not, why."""
    host = (endpoint.hostname or "").lower()
    name = host if is_label(host) else host_of(address).lower()
    text = f"{address} ({name})"
    if parse_address(address) is None:
        return f"left out {text}: no address"
    if endpoint.conditions is not None and endpoint.conditions.ready is False:
        also = ", though serving" if endpoint.conditions.serving else ""
        return f"left out {text}: not ready{also}"
    if len(parts.below) == ENDPOINT_LABELS and parts.below[0] != name:
        return f"left out {text}: its name is not {parts.below[0]}"
    return f"used     {text}"


def _explain_pod(lookup: Lookup, parts: NameParts) -> Iterator[str]:
    label = ".".join((*parts.below, parts.name))
    address = None if parts.below else pod_address(parts.name.encode("latin-1"))
    if address is None:
        yield f"{label} is not an address"
    elif not lookup.index.has_namespace(parts.namespace.encode("latin-1")):
        yield f"namespace {parts.namespace} does not exist"
    elif lookup.pods == "verified":
        runs = lookup.index.has_pod(parts.namespace.encode("latin-1"), address)
        yield f"the pod with address {address}; with pods verified, and {'one runs' if runs else 'none runs'} in {parts.namespace}"
    elif lookup.pods == "disabled":
        yield f"the pod with address {address}; with pods disabled, pods have no names"
    else:
        yield f"the pod with address {address}; with pods insecure, the name exists even if there is no such pod"


def _explain_reverse(lookup: Lookup, name: bytes, zone: bytes) -> Iterator[str]:
    address = address_of(domain_names.labels_of(name[: len(name) - len(zone)] + b"\0"), zone)
    if address is None:
        yield "is not a complete address: asked upstream"
        return
    entry = lookup.index.at_cluster_ip(address)
    endpoints = lookup.index.at_endpoint(address)
    if entry is not None:
        yield f"{address} is a ClusterIP of Service {entry.names.key}"
    elif endpoints:
        owners = ", ".join(str(one.names.key) for one in endpoints)
        yield f"{address} is a ready endpoint of {owners}"
    else:
        yield f"{address} is neither a ClusterIP nor a ready endpoint of ours: asked upstream"
