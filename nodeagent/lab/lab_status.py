"""The present state of a lab, read each time. What cannot be read (the API server does not answer) is left out."""

from collections.abc import Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

from nodeagent.lab import lab_objects
from nodeagent.lab.api import Document
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.control_plane import process_state
from nodeagent.lab.lab_plan import HEALTH_PORT
from nodeagent.lab.net.network_namespaces import LabError, inside
from nodeagent.lab.programming import ServiceEndpoint, expected_endpoints, programmed
from nodeagent.lab.supervisor_messages import ControlStatus, NodeStatus, PodStatus, ServiceStatus
from nodeagent.model.addresses import endpoint_text

ANSWER_SECONDS = 1.0


def node_statuses(cluster: LiveCluster) -> tuple[NodeStatus, ...]:
    """Returns the status of every node."""
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
    """Returns "running", "stopped" or "frozen"."""
    if not cluster.agents[node].running:
        return "stopped"
    return "frozen" if node in cluster.frozen else "running"


def is_healthy(cluster: LiveCluster, node: str) -> bool:
    """Returns whether the node's /healthz reports success."""
    if agent_state(cluster, node) != "running":
        return False

    address = cluster.nodes[node][1].addresses[0]
    return answer_of_agent(cluster.world.namespace(node), address, HEALTH_PORT, "/healthz") is not None


def answer_of_agent(namespace: str, address: str, port: int, path: str) -> bytes | None:
    """Returns the body of a GET to an agent's port, from its namespace; None without a 200 within a second."""

    def ask() -> bytes | None:
        connection = HTTPConnection(address, port, timeout=ANSWER_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.read() if response.status == HTTPStatus.OK else None
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()

    return inside(namespace, ask)


def api_state(cluster: LiveCluster) -> str:
    """Returns "running", "stopped", how many of several run, or the URL of a server outside."""
    if cluster.control is None:
        return cluster.settings.api
    states = [process_state(server) for server in cluster.control.servers.values()]
    if len(states) == 1:
        return states[0]
    return f"{states.count('running')} of {len(states)} running"


def control_statuses(cluster: LiveCluster) -> tuple[ControlStatus, ...]:
    """Returns the status of every control-plane host; empty if there is only one."""
    control = cluster.control
    if control is None or control.etcd is None:
        return ()
    try:
        elected = control.elected(cluster.api)
    except LabError:
        elected = ""
    return tuple(
        ControlStatus(
            host,
            control.addresses(host),
            process_state(control.servers[host]),
            control.is_ready(host),
            host == elected,
            process_state(control.etcd.members[host]),
            process_state(control.etcd.members[host]) == "running" and control.etcd.leads(host),
        )
        for host in control.hosts
    )


def pod_statuses(cluster: LiveCluster) -> tuple[PodStatus, ...]:
    """Returns every pod, and whether the API server reports it as ready."""
    try:
        ready = {pod["metadata"]["name"] for pod in cluster.api.call("GET", lab_objects.PODS)["items"] if is_ready(pod)}
    except LabError:
        ready = set()
    return tuple(PodStatus(name, node, pod.addresses, name in ready) for name, (pod, node) in cluster.pods.items())


def service_statuses(cluster: LiveCluster) -> tuple[ServiceStatus, ...]:
    """Returns every Service and its addresses."""
    try:
        expected = expected_endpoints(cluster.api)
        services = cluster.api.call("GET", "/api/v1/services")["items"]
    except LabError:
        return ()
    return tuple(service_status(one, expected) for one in services)


def is_ready(pod: Document) -> bool:
    """Returns whether a pod object is ready and not terminating."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    reported = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return reported and not pod["metadata"].get("deletionTimestamp")


def service_status(service: Document, expected: set[ServiceEndpoint]) -> ServiceStatus:
    """Returns a Service and its addresses."""
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
