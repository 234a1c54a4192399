"""The objects of the cases: nodes, their pods, Services, as read from the cluster (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from nodeagent.diagnosis.connectivity.objects import CLIENT, HOST, ROLE, SERVER
from nodeagent.model.addresses import Family, Protocol, family_of, parse_address

Document = Mapping[str, Any]
Addresses = Mapping[Family, str]


class DeployedPod(Struct, frozen=True):
    """A test pod. addresses: those of its network namespace; for a pod in the node's network, those of the node."""

    name: str
    addresses: Addresses


class DeployedNode(Struct, frozen=True):
    """A node with its three test pods. addresses: its internal addresses."""

    name: str
    addresses: Addresses
    server: DeployedPod
    client: DeployedPod
    host: DeployedPod


class DeployedService(Struct, frozen=True):
    """A test Service. cluster_ips: empty for a headless one. node_ports: empty without node ports."""

    name: str
    cluster_ips: Addresses
    node_ports: Mapping[Protocol, int]


class ClusterResolver(Struct, frozen=True):
    """The DNS server of the pods. domain: of the cluster; empty if the search list does not contain it."""

    address: str = ""
    domain: str = ""


class DeployedObjects(Struct, frozen=True):
    """The objects that were created for the cases. families: of the cluster's Services, the primary one first. outer_addresses:
    Service → its addresses from outside. refused: Service that the cluster refuses → why. unreachable: family in which
    this machine does not reach the nodes → why. outer_is_routed: whether the load balancer's address leads from this
    machine to a node."""

    namespace: str
    nodes: tuple[DeployedNode, ...]
    services: Mapping[str, DeployedService]
    families: tuple[Family, ...]
    outer_addresses: Mapping[str, Addresses]
    resolver: ClusterResolver
    refused: Mapping[str, str] = {}
    unreachable: Mapping[Family, str] = {}
    outer_is_routed: bool = False


def chosen_nodes(nodes: Iterable[Document], count: int) -> list[Document]:
    """Returns the first nodes by name that are ready and run Linux, at most `count`."""
    return sorted((node for node in nodes if _takes_pods(node)), key=_name)[:count]


def _takes_pods(node: Document) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    system = node["metadata"].get("labels", {}).get("kubernetes.io/os", "linux")
    return ready and system == "linux"


def pods_by_node(pods: Iterable[Document]) -> dict[tuple[str, str], DeployedPod]:
    """Returns the pod for each (role, node)."""
    return {
        (pod["metadata"]["labels"][ROLE], pod["spec"]["nodeName"]): DeployedPod(
            pod["metadata"]["name"], by_family(one["ip"] for one in pod["status"].get("podIPs") or ())
        )
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def deployed_node(node: Document, pods: Mapping[tuple[str, str], DeployedPod]) -> DeployedNode:
    """Returns a node with its pods. Raises KeyError if one is missing."""
    name = _name(node)
    internal = (one["address"] for one in node["status"].get("addresses", ()) if one["type"] == "InternalIP")
    server, client, host = (pods[role, name] for role in (SERVER, CLIENT, HOST))
    return DeployedNode(name, by_family(internal), server, client, host)


def service_place(service: Document) -> DeployedService:
    spec = service["spec"]
    ips = (address for address in spec.get("clusterIPs", ()) if address != "None")
    ports = {Protocol[port["protocol"]]: port["nodePort"] for port in spec["ports"] if port.get("nodePort")}
    return DeployedService(_name(service), by_family(ips), ports)


def families_of(service: Document) -> tuple[Family, ...]:
    return tuple(map(Family, service["spec"]["ipFamilies"]))


def by_family(addresses: Iterable[str]) -> dict[Family, str]:
    """Returns the first address of each family."""
    found: dict[Family, str] = {}
    for address in addresses:
        if (canonical := parse_address(address)) is not None:
            found.setdefault(family_of(canonical), canonical)
    return found


def resolver_of(resolv_conf: str, namespace: str) -> ClusterResolver:
    """Returns server and domain from a pod's resolv.conf."""
    lines = [line.split() for line in resolv_conf.splitlines()]
    servers = [words[1] for words in lines if words[:1] == ["nameserver"] and words[1:]]
    search = [word for words in lines if words[:1] == ["search"] for word in words[1:]]
    return ClusterResolver(servers[0] if servers else "", _domain(search, f"{namespace}.svc."))


def _domain(search: Sequence[str], prefix: str) -> str:
    return next((word.removeprefix(prefix).rstrip(".") for word in search if word.startswith(prefix)), "")


def _name(document: Document) -> str:
    name: str = document["metadata"]["name"]
    return name
