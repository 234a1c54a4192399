"""Which parts of the context the translation of a service looks at: a change of another part leaves it as it is."""

from collections.abc import Iterable
from enum import Flag, auto

from msgspec.structs import asdict

from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.translate.context import Context


class Part(Flag):
    """A part of the context. REST: what every service depends on."""

    ZONE = auto()
    NODE_ADDRESSES = auto()
    REST = auto()


_PARTS = {"zone": Part.ZONE, "node_addresses": Part.NODE_ADDRESSES}


def looked_at(service: Service, slices: Iterable[EndpointSlice]) -> Part:
    """What the translation may look at (`select.near`, `source_ranges`), at least.

    Zones matter to endpoints with hints, the node's addresses to source ranges that may hold one.
    """
    parts = Part.REST
    if service.spec.load_balancer_source_ranges:
        parts |= Part.NODE_ADDRESSES
    if any(endpoint.hints is not None for one in slices for endpoint in one.endpoints or ()):
        parts |= Part.ZONE
    return parts


def changed_parts(before: Context | None, after: Context) -> Part:
    """What differs; everything when there was nothing before."""
    if before is None:
        return Part.ZONE | Part.NODE_ADDRESSES | Part.REST
    old, new = asdict(before), asdict(after)
    parts = Part(0)
    for name, value in new.items():
        if old[name] != value:
            parts |= _PARTS.get(name, Part.REST)
    return parts
