"""Which pods back a Service, and with which ports: the decisions of the endpoints and endpointslice controllers. Pure.

Rules: k8s.io/endpointslice utils.go (podToEndpoint, getEndpointPorts), pkg/api/v1/pod (IsPodReady), k8s.io/endpointslice
trafficdist for hints.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct, field

from nodeagent.kinds.description.documents import Document

ZONE_LABEL = "topology.kubernetes.io/zone"


class PodMeta(Struct, gc=False, rename="camel"):
    """The metadata of a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}


class ContainerPort(Struct, gc=False, rename="camel"):
    """A port of a container."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"


class Container(Struct, gc=False):
    """The ports of a container."""

    ports: list[ContainerPort] = []


class PodSpec(Struct, gc=False, rename="camel"):
    """The ports, the node and the host name of a pod."""

    containers: list[Container] | None = None
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""


class PodIP(Struct, gc=False):
    """An address of a pod."""

    ip: str = ""


class PodCondition(Struct, gc=False, rename="camel"):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class PodStatus(Struct, gc=False, rename="camel"):
    """The phase, addresses and readiness of a pod."""

    phase: str = ""
    pod_ip: str = field(default="", name="podIP")
    pod_ips: list[PodIP] = field(default_factory=list, name="podIPs")
    conditions: list[PodCondition] = []


class Pod(Struct, gc=False):
    """The fields of a pod that matter to Services. A pod in the host network differs only in its addresses."""

    metadata: PodMeta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def is_ready(self) -> bool:
        """Whether its Ready condition is true."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def ready_since(self) -> str:
        """When its readiness last changed, RFC 3339; empty if that is not known."""
        return next((c.last_transition_time or "" for c in self.status.conditions if c.type == "Ready"), "")

    @property
    def is_terminating(self) -> bool:
        """Whether it is being deleted (deletionTimestamp)."""
        return self.metadata.deletion_timestamp is not None

    @property
    def has_ended(self) -> bool:
        """Whether it ran to its end, with or without success."""
        return self.status.phase in ("Succeeded", "Failed")

    def address(self, family: str) -> str | None:
        """Returns its first address of the family `IPv4` or `IPv6`, or None."""
        texts = [entry.ip for entry in self.status.pod_ips] or [self.status.pod_ip]
        return next((text for text in texts if text and (":" in text) == (family == "IPv6")), None)


@dataclass(frozen=True, slots=True, order=True)
class Port:
    """A port of a slice. Two endpoints share a slice if all their ports are equal."""

    name: str
    protocol: str
    number: int
    app_protocol: str = ""

    def document(self) -> Document:
        """Returns a discovery.k8s.io/v1 EndpointPort."""
        shown: Document = {"name": self.name, "protocol": self.protocol, "port": self.number}
        return {**shown, "appProtocol": self.app_protocol} if self.app_protocol else shown


Ports: TypeAlias = tuple[Port, ...]


def target_ports(service: Document, pod: Pod) -> Ports:
    """Returns the Service's ports with the port numbers of this pod; a named target that the pod does not have is left out."""
    found = []
    for port in service["spec"].get("ports") or []:
        target = port.get("targetPort", port["port"])
        number = target if isinstance(target, int) else _container_port(pod, target, port["protocol"])
        if number:
            found.append(Port(port.get("name", ""), port["protocol"], number, port.get("appProtocol") or ""))
    return tuple(found)


def _container_port(pod: Pod, name: str, protocol: str) -> int:
    ports = (port for container in pod.spec.containers or [] for port in container.ports)
    return next((port.container_port for port in ports if port.name == name and port.protocol == protocol), 0)


def endpoint(service: Document, pod: Pod, family: str, node_labels: Mapping[str, str]) -> Document | None:
    """Returns the pod as an endpoint of the Service in one IP family, or None if it is not one."""
    address = pod.address(family)
    if address is None or pod.has_ended:
        return None
    serving, terminating = pod.is_ready, pod.is_terminating
    ready = bool(service["spec"].get("publishNotReadyAddresses")) or (serving and not terminating)
    found: Document = {
        "addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
    }
    if pod.spec.hostname and pod.spec.subdomain == service["metadata"]["name"]:
        found["hostname"] = pod.spec.hostname
    found["targetRef"] = _reference(pod)
    if pod.spec.node_name:
        found["nodeName"] = pod.spec.node_name
        zone = node_labels.get(ZONE_LABEL)
        if zone:
            found["zone"] = zone
    hints = _hints(service["spec"].get("trafficDistribution"), found)
    return {**found, "hints": hints} if hints else found


def _reference(pod: Pod) -> Document:
    meta = pod.metadata
    return {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}


def _hints(distribution: str | None, found: Document) -> Document | None:
    """Returns the hints of KEP-3015: clients in the same zone, or on the same node, prefer this endpoint."""
    if distribution is None or not found["conditions"]["ready"] or not found.get("zone"):
        return None
    hints: Document = {"forZones": [{"name": found["zone"]}]}
    if distribution == "PreferSameNode":
        hints["forNodes"] = [{"name": found["nodeName"]}]
    return hints


def legacy_subsets(service: Document, pods: Sequence[Pod]) -> list[Document]:
    """Returns the subsets of an Endpoints object: addresses of the first family, grouped by their ports, sorted."""
    spec = service["spec"]
    family = (spec.get("ipFamilies") or ["IPv4"])[0]
    published = bool(spec.get("publishNotReadyAddresses"))
    groups: dict[Ports, tuple[list[Document], list[Document]]] = {}
    for pod in pods:
        address = pod.address(family)
        if address is None or pod.has_ended or (pod.is_terminating and not published):
            continue
        entry: Document = {"ip": address}
        if pod.spec.hostname and pod.spec.subdomain == service["metadata"]["name"]:
            entry["hostname"] = pod.spec.hostname
        if pod.spec.node_name:
            entry["nodeName"] = pod.spec.node_name
        entry["targetRef"] = _reference(pod)
        ports = target_ports(service, pod)
        if not ports and spec.get("ports"):
            continue
        ready, waiting = groups.setdefault(ports, ([], []))
        (ready if published or pod.is_ready else waiting).append(entry)
    return [_subset(ports, *groups[ports]) for ports in sorted(groups)]


def _subset(ports: Ports, ready: list[Document], waiting: list[Document]) -> Document:
    subset: Document = {}
    for name, entries in (("addresses", ready), ("notReadyAddresses", waiting)):
        if entries:
            subset[name] = sorted(entries, key=lambda entry: str(entry["ip"]))
    shown = []
    for port in sorted(ports, key=lambda port: port.name):
        one: Document = {"name": port.name} if port.name else {}
        one |= {"port": port.number, "protocol": port.protocol}
        shown.append({**one, "appProtocol": port.app_protocol} if port.app_protocol else one)
    return {**subset, "ports": shown} if shown else subset


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Returns whether an equality selector selects these labels."""
    return all(labels.get(key) == value for key, value in selector.items())


def families_of(service: Document) -> Iterable[str]:
    """Returns the IP families of a Service."""
    found: list[str] = service["spec"].get("ipFamilies") or ["IPv4"]
    return found
