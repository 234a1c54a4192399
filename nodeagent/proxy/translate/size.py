"""Estimates the work of translating services, before it is done."""

from collections.abc import Iterable

from nodeagent.model.names import ObjectKey
from nodeagent.model.snapshot import Snapshot

_SERVICE = 10
"""The fixed cost of a service, in endpoints of one port."""


def translation_size(snapshot: Snapshot, keys: Iterable[ObjectKey]) -> int:
    """Returns the sum of the endpoints of every port, the frontends and the source ranges that services can have at most."""
    size = 0
    for key in keys:
        size += _SERVICE
        service = snapshot.services.get(key)
        if service is None:
            continue
        spec, status = service.spec, service.status
        ingress = status.load_balancer.ingress if status and status.load_balancer else None
        addresses = 2 + len(spec.external_ips or ()) + len(ingress or ())
        size += len(spec.ports or ()) * addresses + len(spec.load_balancer_source_ranges or ())
        size += sum(len(one.endpoints or ()) * len(one.ports or ()) for one in snapshot.slices_of(key))
    return size
