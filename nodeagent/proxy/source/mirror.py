"""Converts Endpoints to EndpointSlices, as the endpoint-slice-mirroring controller does. Pure.

Followed: kubernetes pkg/controller/endpointslicemirroring (reconciler.go, utils.go). Subsets with the same ports are merged, families are
separated, each group becomes one slice, a subset contributes at most 1000 addresses, an address that cannot be parsed is left out.

Where this differs, on purpose:

- Names are derived from the contents' group (family and ports), not generated at random, so the same Endpoints always
  mirror to the same keys and an update replaces what it should.
- An address that is listed both ready and not ready for the same ports is ready. The controller keeps two entries
  (one per target) and leaves the choice to the proxy.
- The trigger-time annotation is kept: network programming latency is measured from it.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2s

from msgspec.structs import replace

from nodeagent.model.addresses import Family, family_of, parse_address
from nodeagent.model.objects import (
    LABEL_SERVICE_NAME,
    Endpoint,
    EndpointAddress,
    EndpointConditions,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    EndpointSubset,
    ObjectMeta,
    Service,
)

LABEL_SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
LABEL_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
ANNOTATION_LEADER = "control-plane.alpha.kubernetes.io/leader"
ANNOTATION_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MANAGED_BY = "endpointslicemirroring-controller.k8s.io"
MAX_ADDRESSES_PER_SUBSET = 1000

_READY = EndpointConditions(ready=True)
_NOT_READY = EndpointConditions(ready=False)

Group = tuple[Family, tuple[EndpointPort, ...]]


def mirror_endpoints(
    endpoints: Endpoints, service: Service | None, *, honour_opt_out: bool = True
) -> tuple[EndpointSlice, ...]:
    """Returns the slices for `endpoints`, sorted by name; one for each family and set of ports that has an address.

    service: the Service of the same name and namespace, None if it does not exist.
    honour_opt_out: True for hand-written Endpoints: the skip-mirror label, the annotation of a leader election lock
        and a missing Service each mean that nothing is mirrored. False for Endpoints the endpoints controller made:
        they are converted unconditionally.
    """
    if honour_opt_out and (service is None or opts_out(endpoints)):
        return ()
    groups: dict[Group, dict[str, Endpoint]] = {}
    for subset in endpoints.subsets or ():
        ports = _ports_of(subset)
        for endpoint in _endpoints_of(subset):
            address = endpoint.addresses[0] if endpoint.addresses else ""
            group = groups.setdefault((family_of(address), ports), {})
            known = group.get(address)
            if known is None or known.conditions is _NOT_READY:
                group[address] = endpoint
    slices = (_slice(endpoints, group, members.values()) for group, members in groups.items())
    return tuple(sorted(slices, key=lambda made: made.metadata.name))


def opts_out(endpoints: Endpoints) -> bool:
    """Returns whether the object forbids its own mirroring."""
    meta = endpoints.metadata
    return (meta.labels or {}).get(LABEL_SKIP_MIRROR) == "true" or ANNOTATION_LEADER in (meta.annotations or {})


def _ports_of(subset: EndpointSubset) -> tuple[EndpointPort, ...]:
    """Returns the ports in canonical order and spelling: an unnamed port has the name "", the protocol defaults to TCP."""
    ports = {EndpointPort(port.name or "", port.port, port.protocol or "TCP") for port in subset.ports or ()}
    return tuple(sorted(ports, key=_port_order))


def _port_order(port: EndpointPort) -> tuple[str, str, int]:
    return (port.name or "", port.protocol or "", port.port or 0)


def _endpoints_of(subset: EndpointSubset) -> Iterator[Endpoint]:
    """Yields at most MAX_ADDRESSES_PER_SUBSET endpoints, the ready ones first; invalid addresses do not count."""
    room = MAX_ADDRESSES_PER_SUBSET
    for listed, conditions in ((subset.addresses, _READY), (subset.not_ready_addresses, _NOT_READY)):
        for entry in listed or ():
            if room == 0:
                return
            endpoint = _endpoint(entry, conditions)
            if endpoint is not None:
                room -= 1
                yield endpoint


def _endpoint(entry: EndpointAddress, conditions: EndpointConditions) -> Endpoint | None:
    address = parse_address(entry.ip)
    if address is None:
        return None
    return Endpoint(addresses=(address,), conditions=conditions, node_name=entry.node_name, hostname=entry.hostname)


def _slice(endpoints: Endpoints, group: Group, members: Iterable[Endpoint]) -> EndpointSlice:
    family, ports = group
    meta = endpoints.metadata
    return EndpointSlice(
        metadata=replace(
            meta,
            name=_name(meta.name, group),
            uid="",
            labels={**(meta.labels or {}), LABEL_SERVICE_NAME: meta.name, LABEL_MANAGED_BY: MANAGED_BY},
            annotations=_annotations(meta),
        ),
        address_type=family.value,
        endpoints=tuple(members)[:MAX_ADDRESSES_PER_SUBSET],
        ports=ports,
    )


def _name(endpoints_name: str, group: Group) -> str:
    """Returns `<endpoints>-<family>-<digest of the ports>`, within the API's 253 characters."""
    family, ports = group
    spelled = "\n".join(f"{port.name}/{port.protocol}/{port.port}" for port in ports)
    suffix = f"-{family.value.lower()}-{blake2s(spelled.encode(), digest_size=5).hexdigest()}"
    return endpoints_name[: 253 - len(suffix)] + suffix


def _annotations(meta: ObjectMeta) -> dict[str, str] | None:
    kept = {name: value for name, value in (meta.annotations or {}).items() if name != ANNOTATION_LAST_APPLIED}
    return kept or None
