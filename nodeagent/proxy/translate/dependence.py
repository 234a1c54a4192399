"""Which parts of the context the translation of a service looks at: a change of another part leaves it as it is."""

from collections.abc import Iterable
from enum import Flag, auto

from msgspec.structs import asdict

from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.proxy.translate.context import Context


class Part(Flag):
    """A part of the context. REST: what every service depends on."""

    ZONE = auto()
    NODE_ADDRESSES = auto()
    PROTECTION = auto()
    REST = auto()


_PARTS = {"zone": Part.ZONE, "node_addresses": Part.NODE_ADDRESSES, "protection": Part.PROTECTION}


def looked_at(service: Service, slices: Iterable[EndpointSlice]) -> Part:
    """What the translation may look at (`select.near`, `source_ranges`, `protection`), at least.

    Zones matter to endpoints with hints, the node's addresses to source ranges that may hold one,
    what is protected to addresses other than ClusterIPs.
    """
    parts = Part.REST
    if service.spec.load_balancer_source_ranges:
        parts |= Part.NODE_ADDRESSES
    if _is_external(service):
        parts |= Part.PROTECTION
    if any(endpoint.hints is not None for one in slices for endpoint in one.endpoints or ()):
        parts |= Part.ZONE
    return parts


def _is_external(service: Service) -> bool:
    spec, status = service.spec, service.status
    balanced = status is not None and status.load_balancer is not None and status.load_balancer.ingress
    return bool(spec.external_ips or balanced or any(port.node_port for port in spec.ports or ()))


def changed_parts(before: Context | None, after: Context) -> Part:
    """What differs; everything when there was nothing before."""
    if before is None:
        return ~Part(0)
    old, new = asdict(before), asdict(after)
    parts = Part(0)
    for name, value in new.items():
        if old[name] != value:
            parts |= _PARTS.get(name, Part.REST)
    return parts
