"""Decides how much of an object is kept in memory, and which differences between two versions count.

Kept is what some part of the agent reads. At 10,000 services with 10 endpoints each the same few combinations of node, zone and
conditions appear 100,000 times: one instance of each, and one text for the addresses of a slice, are a fifth of what they take as objects.
"""

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from nodeagent.model.objects import (
    ANNOTATION_TRIGGER_TIME,
    LABEL_HEADLESS,
    LABEL_PROXY_NAME,
    LABEL_SERVICE_NAME,
    LABEL_ZONE,
    Endpoint,
    EndpointSlice,
    Node,
    ObjectMeta,
    Service,
    ServiceCIDR,
    StoredObject,
)
from nodeagent.model.packed import SEPARATOR
from nodeagent.model.stored_endpoints import StoredEndpoints

T = TypeVar("T", bound=StoredObject)
V = TypeVar("V", bound=Hashable)

SHARED_VALUES_LIMIT = 1 << 16
"""Distinct shared values before the table is emptied, so that the node names of years do not accumulate."""


class Retention:
    """Makes the stored form of objects. Two stored forms of one version are equal; see `unchanged`."""

    def __init__(self, *, for_names: bool = False) -> None:
        """for_names: keep hostnames of endpoints too, which only cluster DNS reads."""
        self._for_names = for_names
        self._shared: dict[Any, Any] = {}
        """Each value by itself; an endpoint without its address by what it consists of, which takes less time than to make it again."""

    def retain(self, obj: T) -> T:
        """Returns the object with only the metadata that the agent reads; resourceVersion is dropped for every kind."""
        if len(self._shared) >= SHARED_VALUES_LIMIT:
            self._shared.clear()
        retained: StoredObject
        if isinstance(obj, EndpointSlice):
            retained = self._retain_slice(obj)
        elif isinstance(obj, Service):
            retained = self._retain_service(obj)
        elif isinstance(obj, Node):
            retained = _retain_node(obj)
        else:
            retained = ServiceCIDR(metadata=ObjectMeta(name=obj.metadata.name, uid=obj.metadata.uid), spec=obj.spec)
        return cast("T", retained)

    def _retain_service(self, service: Service) -> Service:
        meta = service.metadata
        kept = ObjectMeta(
            name=meta.name,
            namespace=self._share(meta.namespace),
            uid=meta.uid,
            creation_timestamp=self._share(meta.creation_timestamp),
            labels=_kept_labels(meta, LABEL_PROXY_NAME),
        )
        status = service.status
        if status is not None and (status.load_balancer is None or not status.load_balancer.ingress):
            status = None
        spec = service.spec
        if spec.ports and all(port.node_port is None for port in spec.ports):  # a node port is of one Service only
            spec = replace(spec, ports=self._share(spec.ports))
        return Service(metadata=kept, spec=spec, status=status)

    def _retain_slice(self, endpoints: EndpointSlice) -> EndpointSlice:
        meta = endpoints.metadata
        trigger_time = meta.annotations.get(ANNOTATION_TRIGGER_TIME) if meta.annotations else None
        kept = ObjectMeta(
            name=meta.name,
            namespace=self._share(meta.namespace),
            uid=meta.uid,
            labels=_kept_labels(meta, LABEL_SERVICE_NAME, LABEL_HEADLESS),
            annotations={ANNOTATION_TRIGGER_TIME: trigger_time} if trigger_time else None,
        )
        return EndpointSlice(
            metadata=kept,
            address_type=self._share(endpoints.address_type),
            endpoints=self._retain_endpoints(endpoints.endpoints or ()),
            ports=self._share(endpoints.ports or ()),
        )

    def _retain_endpoints(self, endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
        """Returns them with what is read; those of nearly every slice have one address each, and are packed."""
        others = self._without_addresses(endpoints)
        addresses = [one.addresses[0] for one in endpoints if one.addresses and len(one.addresses) == 1]
        joined = SEPARATOR.join(addresses)
        if addresses and len(addresses) == len(others) == joined.count(SEPARATOR) + 1:
            return StoredEndpoints(joined, tuple(others))
        return tuple([replace(other, addresses=one.addresses) for other, one in zip(others, endpoints, strict=True)])

    def _without_addresses(self, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
        """Returns what is read of each endpoint besides its addresses; of equal ones, the same object."""
        shared = self._shared
        known: list[Any] = [shared.get((one.conditions, one.node_name, one.zone, one.hints)) for one in endpoints]
        if all(known) and not self._for_names:
            return known
        others: list[Endpoint] = []
        for one in endpoints:
            about = (one.conditions, one.node_name, one.zone, one.hints)
            other = shared.get(about) or shared.setdefault(about, Endpoint(None, *about))
            has_name = self._for_names and one.hostname is not None
            others.append(replace(other, hostname=one.hostname) if has_name else other)
        return others

    def _share(self, value: V) -> V:
        shared: V = self._shared.setdefault(value, value)
        return shared


def _kept_labels(meta: ObjectMeta, *names: str) -> dict[str, str] | None:
    """Returns the labels that the agent reads; None instead of an empty dict, because it takes no memory."""
    return {name: meta.labels[name] for name in names if name in meta.labels} or None if meta.labels else None


def _retain_node(node: Node) -> Node:
    meta = node.metadata
    zone = (meta.labels or {}).get(LABEL_ZONE)
    kept = ObjectMeta(
        name=meta.name,
        uid=meta.uid,
        deletion_timestamp=meta.deletion_timestamp,
        labels={LABEL_ZONE: zone} if zone else None,
    )
    return Node(metadata=kept, spec=node.spec, status=node.status)


def unchanged(held: StoredObject, latest: StoredObject) -> bool:
    """Returns whether the latest stored form means the same to the agent as the one held.

    The trigger time of a slice is for the latency metric only: a slice that differs in nothing else has not changed
    (docs/semantics.md 27).
    """
    if isinstance(held, EndpointSlice) and isinstance(latest, EndpointSlice):
        return (
            held.endpoints == latest.endpoints
            and held.ports == latest.ports
            and held.address_type == latest.address_type
            and held.metadata.labels == latest.metadata.labels
        )
    return held == latest
