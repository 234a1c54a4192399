"""Services, EndpointSlices and Nodes with sane defaults, and a directory that holds them as manifests."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import yaml

from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.model.objects import (
    LABEL_SERVICE_NAME,
    LABEL_ZONE,
    ApiObject,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    NodeStatus,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
)

NAMESPACE = "default"
API_VERSIONS = {
    "Service": "v1",
    "Endpoints": "v1",
    "Node": "v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "ServiceCIDR": "networking.k8s.io/v1",
}


def service_port(
    port: int, protocol: Protocol = Protocol.TCP, *, name: str | None = None, node_port: int | None = None
) -> ServicePort:
    """A port of a service; give it a name when there are several."""
    return ServicePort(port, name=name, protocol=protocol.name, node_port=node_port)


def make_service(
    name: str,
    *cluster_ips: str,
    ports: Sequence[ServicePort] = (service_port(80),),
    load_balancer_ips: Iterable[str] = (),
    spec: ServiceSpec | None = None,
) -> Service:
    """A service whose type follows from what it has: a node port, load-balancer addresses, or neither.

    `spec` gives all other fields (policies, affinity, external addresses, source ranges); addresses, families, ports
    and type are set here.
    """
    kind = "NodePort" if any(port.node_port for port in ports) else "ClusterIP"
    ingress = tuple(LoadBalancerIngress(address) for address in load_balancer_ips)
    filled = msgspec.structs.replace(
        spec or ServiceSpec(),
        type="LoadBalancer" if ingress else kind,
        cluster_ip=cluster_ips[0],
        cluster_ips=cluster_ips,
        ip_families=tuple(family_of(address).value for address in cluster_ips),
        ports=tuple(ports),
    )
    status = ServiceStatus(LoadBalancerStatus(ingress)) if ingress else None
    return Service(ObjectMeta(name, NAMESPACE), filled, status)


def make_node(name: str, addresses: Iterable[str], *, zone: str | None = None) -> Node:
    """A Node with these internal addresses, the primary one first."""
    labels = {LABEL_ZONE: zone} if zone else None
    status = NodeStatus(tuple(NodeAddress("InternalIP", address) for address in addresses))
    return Node(ObjectMeta(name, labels=labels), status=status)


def make_endpoint(
    address: str,
    node: str | None = None,
    *,
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
    zone: str | None = None,
) -> Endpoint:
    """A ready endpoint, unless said otherwise."""
    return Endpoint((address,), EndpointConditions(ready, serving, terminating), node, zone)


def make_slice(
    service: Service,
    endpoints: Sequence[Endpoint],
    family: Family = Family.IPV4,
    *,
    target_port: int | None = None,
    suffix: str = "",
) -> EndpointSlice:
    """A slice of the service for all its ports, named after it, the family and `suffix`.

    target_port: where the endpoints listen, for every port alike; None: at the service port.
    """
    ports = tuple(EndpointPort(port.name, target_port or port.port, port.protocol) for port in service.spec.ports or ())
    name = service.metadata.name
    metadata = ObjectMeta(
        f"{name}-{family.value.lower()}{suffix}", service.metadata.namespace, labels={LABEL_SERVICE_NAME: name}
    )
    return EndpointSlice(metadata, family.value, tuple(endpoints), ports)


def make_slices(
    service: Service, places: Iterable[tuple[tuple[str, ...], str]], *, target_port: int | None = None
) -> list[EndpointSlice]:
    """One slice per family of the service (maybe an empty one), from (addresses of a pod, name of its node)."""
    places = list(places)
    slices = []
    for family in map(Family, service.spec.ip_families or ()):
        endpoints = [make_endpoint(a, node) for addresses, node in places for a in addresses if family_of(a) is family]
        slices.append(make_slice(service, endpoints, family, target_port=target_port))
    return slices


def manifest(obj: ApiObject) -> str:
    """The object as YAML, without what is not set."""
    return yaml.safe_dump(document(obj), sort_keys=False)


def manifest_list(objects: Iterable[ApiObject]) -> str:
    """Many objects as one JSON list, which is written and read a hundred times faster than YAML."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [document(obj) for obj in objects]})


def document(obj: ApiObject) -> dict[str, object]:
    """The object as members of a JSON object, without what is not set."""
    kind = type(obj).__name__
    fields = without_nulls(msgspec.to_builtins(obj))
    assert isinstance(fields, dict)
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, **fields}


def without_nulls(value: object) -> object:
    """The value without null and empty-text members, at every depth."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None and member != ""}
    if isinstance(value, list | tuple):
        return [without_nulls(member) for member in value]
    return value


class ManifestDirectory:
    """One YAML file per object; a file changes in one step, so a reader never sees half of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _file(self, obj: ApiObject) -> Path:
        parts = (type(obj).__name__.lower(), obj.metadata.namespace, obj.metadata.name)
        return self.path / f"{'-'.join(part for part in parts if part)}.yaml"

    def put(self, *objects: ApiObject) -> None:
        """Write or replace."""
        for obj in objects:
            file = self._file(obj)
            half = file.with_name(f".{file.name}.new")
            half.write_text(manifest(obj))
            half.replace(file)

    def remove(self, *objects: ApiObject) -> None:
        """Delete; one that is not there is fine."""
        for obj in objects:
            self._file(obj).unlink(missing_ok=True)
