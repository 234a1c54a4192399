"""The Kubernetes API objects the agent reads, as typed structs decoded straight from bytes.

Only the fields that some code uses are here; unknown ones (managedFields above all) are skipped while decoding and never
become Python objects. Field meanings: Kubernetes API v1 and discovery.k8s.io/v1. `null` and absent are the same.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from nodeagent.model.names import ObjectKey

LABEL_SERVICE_NAME = "kubernetes.io/service-name"
LABEL_HEADLESS = "service.kubernetes.io/headless"
LABEL_PROXY_NAME = "service.kubernetes.io/service-proxy-name"
LABEL_ZONE = "topology.kubernetes.io/zone"
ANNOTATION_TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"

DEFAULT_AFFINITY_SECONDS = 10800
"""sessionAffinityConfig.clientIP.timeoutSeconds if a Service does not set it (Kubernetes API v1)."""
LONGEST_AFFINITY_SECONDS = 86400


class ObjectMeta(Struct, frozen=True, gc=False, rename="camel"):
    """metadata of every object; `creation_timestamp` is RFC 3339 text (sorts as time)."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class ServicePort(Struct, frozen=True, gc=False, rename="camel"):
    port: int
    name: str | None = None
    protocol: str | None = None
    node_port: int | None = None
    target_port: int | str | None = None
    app_protocol: str | None = None


class ClientIPConfig(Struct, frozen=True, gc=False, rename="camel"):
    timeout_seconds: int | None = None


class SessionAffinityConfig(Struct, frozen=True, gc=False):
    client_ip: ClientIPConfig | None = field(default=None, name="clientIP")


class ServiceSpec(Struct, frozen=True, gc=False, rename="camel"):
    type: str | None = None
    cluster_ip: str | None = field(default=None, name="clusterIP")
    cluster_ips: tuple[str, ...] | None = field(default=None, name="clusterIPs")
    ip_families: tuple[str, ...] | None = None
    ports: tuple[ServicePort, ...] | None = None
    external_ips: tuple[str, ...] | None = field(default=None, name="externalIPs")
    internal_traffic_policy: str | None = None
    external_traffic_policy: str | None = None
    session_affinity: str | None = None
    session_affinity_config: SessionAffinityConfig | None = None
    load_balancer_source_ranges: tuple[str, ...] | None = None
    health_check_node_port: int | None = None
    external_name: str | None = None


class LoadBalancerIngress(Struct, frozen=True, gc=False, rename="camel"):
    ip: str | None = None
    hostname: str | None = None
    ip_mode: str | None = None


class LoadBalancerStatus(Struct, frozen=True, gc=False):
    ingress: tuple[LoadBalancerIngress, ...] | None = None


class ServiceStatus(Struct, frozen=True, gc=False, rename="camel"):
    load_balancer: LoadBalancerStatus | None = None


class Service(Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus | None = None


class EndpointConditions(Struct, frozen=True, gc=False):
    """Three-valued: None means unset; docs/semantics.md 25 says how that is treated."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ForZone(Struct, frozen=True, gc=False):
    name: str = ""


class ForNode(Struct, frozen=True, gc=False):
    name: str = ""


class EndpointHints(Struct, frozen=True, gc=False, rename="camel"):
    for_zones: tuple[ForZone, ...] | None = None
    for_nodes: tuple[ForNode, ...] | None = None


class Endpoint(Struct, frozen=True, gc=False, rename="camel"):
    addresses: tuple[str, ...] | None = None
    conditions: EndpointConditions | None = None
    node_name: str | None = None
    zone: str | None = None
    hints: EndpointHints | None = None
    hostname: str | None = None


class EndpointPort(Struct, frozen=True, gc=False):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


if TYPE_CHECKING:
    EndpointList = Sequence[Endpoint]
    """Decoded, they are a tuple; a slice that is held has them packed (`stored_endpoints`)."""
else:
    EndpointList = tuple[Endpoint, ...]


class EndpointSlice(Struct, frozen=True, gc=False, rename="camel"):
    metadata: ObjectMeta
    address_type: str = ""
    endpoints: EndpointList | None = None
    ports: tuple[EndpointPort, ...] | None = None


class EndpointAddress(Struct, frozen=True, gc=False, rename="camel"):
    ip: str = ""
    node_name: str | None = None
    hostname: str | None = None


class EndpointSubset(Struct, frozen=True, gc=False, rename="camel"):
    addresses: tuple[EndpointAddress, ...] | None = None
    not_ready_addresses: tuple[EndpointAddress, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


class Endpoints(Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    subsets: tuple[EndpointSubset, ...] | None = None


class NodeAddress(Struct, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class Taint(Struct, frozen=True, gc=False):
    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(Struct, frozen=True, gc=False):
    pod_cidr: str | None = field(default=None, name="podCIDR")
    pod_cidrs: tuple[str, ...] | None = field(default=None, name="podCIDRs")
    taints: tuple[Taint, ...] | None = None


class NodeStatus(Struct, frozen=True, gc=False):
    addresses: tuple[NodeAddress, ...] | None = None


class Node(Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus | None = None


class ServiceCIDRSpec(Struct, frozen=True, gc=False):
    cidrs: tuple[str, ...] | None = None


class ServiceCIDR(Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: ServiceCIDRSpec = ServiceCIDRSpec()


StoredObject = Service | EndpointSlice | Node | ServiceCIDR
"""What a store holds; Endpoints are converted to EndpointSlices before."""


class Namespace(Struct, frozen=True, gc=False):
    metadata: ObjectMeta


class PodIP(Struct, frozen=True, gc=False):
    ip: str = ""


class PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class PodStatus(Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    pod_ip: str | None = field(default=None, name="podIP")
    pod_ips: tuple[PodIP, ...] | None = field(default=None, name="podIPs")


class Pod(Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None


ApiObject = Service | EndpointSlice | Endpoints | Node | ServiceCIDR | Namespace | Pod


def key_of(obj: ApiObject) -> ObjectKey:
    """Returns the key an object is stored under."""
    return ObjectKey(obj.metadata.namespace, obj.metadata.name)


def is_of_other_proxy(service: Service) -> bool:
    """Returns whether a label, of any value, leaves the Service to another proxy."""
    return LABEL_PROXY_NAME in (service.metadata.labels or {})


def is_headless_slice(endpoints: EndpointSlice) -> bool:
    """Returns whether a label, of any value, says that no proxy may balance to these endpoints, whatever their Service is."""
    return LABEL_HEADLESS in (endpoints.metadata.labels or {})


def is_of_service(endpoints: EndpointSlice) -> bool:
    """Returns whether a label names the Service that a slice belongs to."""
    return bool(endpoints.metadata.labels and endpoints.metadata.labels.get(LABEL_SERVICE_NAME))


def service_of(endpoints: EndpointSlice) -> ObjectKey | None:
    """Returns the Service that a slice belongs to, by its label; None if it has no such label."""
    name = (endpoints.metadata.labels or {}).get(LABEL_SERVICE_NAME)
    return ObjectKey(endpoints.metadata.namespace, name) if name else None
