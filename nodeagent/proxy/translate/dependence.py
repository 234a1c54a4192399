"""Decides on which parts of the context the translation of a service depends. If another part changes, the result stays valid."""

from collections.abc import Iterable
from enum import Flag, auto

from msgspec.structs import asdict

from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.model.stored_endpoints import without_addresses
from nodeagent.proxy.translate.context import Context


class Part(Flag):
    """A part of the context. REST: the fields on which every service depends."""

    ZONE = auto()
    NODE_ADDRESSES = auto()
    PROTECTION = auto()
    REST = auto()


_PARTS = {"zone": Part.ZONE, "node_addresses": Part.NODE_ADDRESSES, "protection": Part.PROTECTION}


def parts_read(service: Service, slices: Iterable[EndpointSlice]) -> Part:
    """Returns all parts on which the translation may depend (`select.narrow_by_topology`, `source_ranges`, `protection`).

    Services depend on zones if endpoints have hints, on the node's addresses if they have source ranges (which may contain
    one), and on the protected addresses if they have addresses other than ClusterIPs.
    """
    parts = Part.REST
    if service.spec.load_balancer_source_ranges:
        parts |= Part.NODE_ADDRESSES
    if _is_external(service):
        parts |= Part.PROTECTION
    for one in slices:
        for endpoint in without_addresses(one.endpoints):
            if endpoint.hints is not None:
                return parts | Part.ZONE
    return parts


def _is_external(service: Service) -> bool:
    spec, status = service.spec, service.status
    balanced = status is not None and status.load_balancer is not None and status.load_balancer.ingress
    return bool(spec.external_ips or balanced or [port for port in spec.ports or () if port.node_port])


def changed_parts(before: Context | None, after: Context) -> Part:
    """Returns the parts that differ; all parts if there was no context before."""
    if before is None:
        return ~Part(0)
    if before is after:
        return Part(0)
    old, new = asdict(before), asdict(after)
    parts = Part(0)
    for name, value in new.items():
        if old[name] != value:
            parts |= _PARTS.get(name, Part.REST)
    return parts
