"""Sets the defaults that the API server would have set, as far as the agent depends on them. Pure.

The rules are those of `kinds/`, on decoded objects: a test holds that both lead to the same frontends. Families follow
the addresses, as in pkg/registry/core/service/storage/alloc.go. Nothing is *allocated* here: an object that needs an
address or a port from an allocator gets an advice instead.
"""

from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from nodeagent.kinds.description.object_check import DEFAULT_NAMESPACE
from nodeagent.kinds.service.kept_addresses import HEADLESS
from nodeagent.model import objects
from nodeagent.model.addresses import family_of, parse_address
from nodeagent.proxy.source.manifests.manifest_fields import ROWS

ObjectT = TypeVar("ObjectT", bound=objects.ApiObject)
PortT = TypeVar("PortT", objects.ServicePort, objects.EndpointPort)


def with_defaults(obj: objects.ApiObject) -> objects.ApiObject:
    """Returns the object as it would be after its creation."""
    if isinstance(obj, objects.Service):
        return replace(_in_namespace(obj), spec=_service_spec(obj.spec))
    if isinstance(obj, objects.EndpointSlice):
        ports = tuple(replace(_with_protocol(port), name=port.name or "") for port in obj.ports or ())
        return replace(_in_namespace(obj), ports=ports)
    if isinstance(obj, objects.Endpoints):
        subsets = tuple(
            replace(subset, ports=tuple(_with_protocol(port) for port in subset.ports or ()))
            for subset in obj.subsets or ()
        )
        return replace(_in_namespace(obj), subsets=subsets)
    return _in_namespace(obj)


def missing_allocations(obj: objects.ApiObject) -> Iterator[tuple[str, str]]:
    """Yields (reason, detail) for what an API server would have allocated and nothing allocates here."""
    if not isinstance(obj, objects.Service) or obj.spec.type == "ExternalName":
        return
    if not obj.spec.cluster_ip:
        yield "NoClusterIP", "no clusterIP: nothing allocates one here; the service is not reachable until it has one"
    elif obj.spec.type == "NodePort" and obj.spec.cluster_ip != HEADLESS:
        ports = ", ".join(str(port.port) for port in obj.spec.ports or () if not port.node_port)
        if ports:
            yield (
                "NoNodePort",
                f"no nodePort for port {ports}: nothing allocates one here; set it to open it on the node",
            )


def _in_namespace(obj: ObjectT) -> ObjectT:
    is_namespaced = ROWS[type(obj).__name__].namespaced
    namespace = (obj.metadata.namespace or DEFAULT_NAMESPACE) if is_namespaced else ""
    if namespace == obj.metadata.namespace:
        return obj
    return replace(obj, metadata=replace(obj.metadata, namespace=namespace))


def _service_spec(spec: objects.ServiceSpec) -> objects.ServiceSpec:
    """Sets defaults: clusterIP and clusterIPs agree; ipFamilies follows the addresses unless it is complete."""
    kind = spec.type or "ClusterIP"
    ports = tuple(_with_protocol(port) for port in spec.ports or ())
    addresses = spec.cluster_ips or ((spec.cluster_ip,) if spec.cluster_ip else ())
    if kind == "ExternalName" or not addresses:
        return replace(spec, type=kind, ports=ports)
    return replace(
        spec,
        type=kind,
        ports=ports,
        cluster_ip=addresses[0],
        cluster_ips=addresses,
        ip_families=_families(spec.ip_families, addresses),
    )


def _families(given: tuple[str, ...] | None, addresses: tuple[str, ...]) -> tuple[str, ...] | None:
    """Returns the given families if there is one for each address; else those of the addresses, if all are valid."""
    if given is not None and len(given) >= len(addresses):
        return given
    parsed = [parse_address(address) for address in addresses]
    families = tuple(family_of(address).value for address in parsed if address is not None)
    return families if len(families) == len(addresses) else given


def _with_protocol(port: PortT) -> PortT:
    return port if port.protocol else replace(port, protocol="TCP")
