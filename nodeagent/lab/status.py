"""A lab as it is now: looked at, not remembered. What cannot be seen (the API server is away) is left out."""

from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

from nodeagent.lab import objects
from nodeagent.lab.api import Document
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.net.namespaces import LabError, inside
from nodeagent.lab.plan import HEALTH_PORT
from nodeagent.lab.programming import ServiceEndpoint, expected_endpoints, programmed
from nodeagent.lab.requests import NodeStatus, PodStatus, ServiceStatus
from nodeagent.model.addresses import endpoint_text

HEALTH_TIMEOUT = 1.0


def node_statuses(cluster: LiveCluster) -> tuple[NodeStatus, ...]:
    """Every node."""
    try:
        counts: Mapping[str, tuple[int, int]] = programmed(
            cluster.world, cluster.nodes, expected_endpoints(cluster.api)
        )
    except LabError:
        counts = {}
    return tuple(
        NodeStatus(
            name,
            node.addresses,
            node.pod_cidrs,
            agent_state(cluster, name),
            cluster.restarts[name],
            is_healthy(cluster, name),
            counts.get(name, (0, 0)),
        )
        for name, (_, node) in cluster.nodes.items()
    )


def agent_state(cluster: LiveCluster, node: str) -> str:
    """running, stopped or frozen."""
    if not cluster.agents[node].running:
        return "stopped"
    return "frozen" if node in cluster.frozen else "running"


def is_healthy(cluster: LiveCluster, node: str) -> bool:
    """What the node's /healthz says."""
    if agent_state(cluster, node) != "running":
        return False

    def look() -> bool:
        connection = HTTPConnection(cluster.nodes[node][1].addresses[0], HEALTH_PORT, timeout=HEALTH_TIMEOUT)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    return inside(cluster.world.namespace(node), look)


def api_state(cluster: LiveCluster) -> str:
    """running, stopped, or where it is."""
    if cluster.api_server is None:
        return cluster.settings.api
    return "running" if cluster.api_server.running else "stopped"


def pod_statuses(cluster: LiveCluster) -> tuple[PodStatus, ...]:
    """Every pod, and whether the API server has it as ready."""
    try:
        ready = {pod["metadata"]["name"] for pod in cluster.api.call("GET", objects.PODS)["items"] if is_ready(pod)}
    except LabError:
        ready = set()
    return tuple(PodStatus(name, node, pod.addresses, name in ready) for name, (pod, node) in cluster.pods.items())


def service_statuses(cluster: LiveCluster) -> tuple[ServiceStatus, ...]:
    """Every service and where it answers."""
    try:
        expected = expected_endpoints(cluster.api)
        services = cluster.api.call("GET", "/api/v1/services")["items"]
    except LabError:
        return ()
    return tuple(service_status(one, expected) for one in services)


def is_ready(pod: Document) -> bool:
    """Whether a pod object says it is ready, and not ending."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    said = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return said and not pod["metadata"].get("deletionTimestamp")


def service_status(service: Document, expected: set[ServiceEndpoint]) -> ServiceStatus:
    """A service and where it answers."""
    meta, spec = service["metadata"], service["spec"]
    name = f"{meta['namespace']}/{meta['name']}"
    places = [address for address in spec.get("clusterIPs") or [] if address != "None"]
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    places += [one["ip"] for one in ingress if one.get("ip")]
    places += spec.get("externalIPs") or []
    addresses = []
    for port in spec.get("ports") or []:
        protocol = port.get("protocol", "TCP")
        addresses += [f"{endpoint_text(place, port['port'])}/{protocol}" for place in places]
        addresses += [f"*:{port['nodePort']}/{protocol}"] if port.get("nodePort") else []
    endpoints = {behind for port, behind in expected if port.partition(":")[0] == name}
    return ServiceStatus(name, spec.get("type", "ClusterIP"), tuple(addresses), len(endpoints))
