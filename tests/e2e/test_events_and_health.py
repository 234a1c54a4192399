"""What the agent tells the cluster: events on Services and the Node, /healthz for load balancers, health check ports."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.api_cluster import ApiCluster, Tenant, answered_by
from tests.harness.cluster import NODE

HEALTHZ = 10256
GRACE_SECONDS = 30
TAINT = "ToBeDeletedByClusterAutoscaler"
VIP = "198.51.100.7"


def get(cluster: ApiCluster, port: int, path: str = "/") -> tuple[int, Any]:
    """Status and document that a load balancer outside gets from the node; 0 when nobody listens.

    A port that nobody has any more says 404, without a document, until it is closed.
    """

    def ask() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://{cluster.world[NODE].address()}:{port}{path}", timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error) if error.code != 404 else None
        except OSError:
            return 0, None

    return inside(cluster.world.namespace("outside"), ask)


def says(cluster: ApiCluster, status: int, path: str) -> Callable[[], bool]:
    """A condition: the health server answers with this status."""
    return lambda: get(cluster, HEALTHZ, path)[0] == status


def counts(cluster: ApiCluster, port: int, endpoints: int) -> Callable[[], bool]:
    """A condition: the health check port counts so many endpoints, and says 503 without endpoints."""
    return lambda: (
        (found := get(cluster, port))[0] == (200 if endpoints else 503) and found[1]["localEndpoints"] == endpoints
    )


def test_an_address_conflict_is_an_event_on_the_service_that_lost(
    calm: ApiCluster, tenant: Tenant, kubectl: Path
) -> None:
    tenant.run_pod("web-0")
    tenant.run_pod("web-1", labels={"app": "other"})
    tenant.expose("first", externalIPs=[VIP])
    calm.agent.wait_until(answered_by(calm, (VIP,), "web-0"), "the external address")
    tenant.expose("second", externalIPs=[VIP], selector={"app": "other"})

    def events() -> Any:
        selector = "involvedObject.kind=Service,reason=AddressConflict"
        return json.loads(tenant.kubectl(kubectl, "get", "events", "--field-selector", selector, "-o", "json"))["items"]

    calm.agent.wait_until(lambda: bool(events()), "the event")
    (event,) = events()
    assert event["involvedObject"]["name"] == "second"
    assert event["involvedObject"]["uid"] == calm.api.get(tenant.path("services", "second"))["metadata"]["uid"]
    assert event["type"] == "Warning"
    assert VIP in event["message"]
    assert NODE not in event["message"], "every node would say the same, so one event stands for all"
    assert "AddressConflict" in tenant.kubectl(kubectl, "describe", "service", "second")
    assert answered_by(calm, (VIP,), "web-0")()


def test_the_start_of_the_agent_is_an_event_on_the_node(calm: ApiCluster, tenant: Tenant, kubectl: Path) -> None:
    selector = "involvedObject.kind=Node,reason=Starting"
    arguments = ("get", "events", "-A", "--field-selector", selector, "-o", "json")
    calm.agent.wait_until(lambda: bool(json.loads(tenant.kubectl(kubectl, *arguments))["items"]), "the event")
    event = json.loads(tenant.kubectl(kubectl, *arguments))["items"][0]
    assert (event["metadata"]["namespace"], event["involvedObject"]["name"]) == ("default", NODE)
    assert event["type"] == "Normal"
    assert "Starting" in tenant.kubectl(kubectl, "describe", "node", NODE)


@pytest.fixture
def node(calm: ApiCluster) -> Iterator[dict[str, Any]]:
    """The Node object of the agent's node, put back in the end."""
    path = f"/api/v1/nodes/{NODE}"
    before = calm.api.get(path)
    yield before
    calm.api.delete(path)
    del before["metadata"]["resourceVersion"], before["metadata"]["uid"]
    created = calm.api.create("/api/v1/nodes", before)
    calm.api.replace(f"{path}/status", {**created, "status": before["status"]})
    calm.agent.wait_until(says(calm, 200, "/healthz"), "the node back")


def test_a_node_the_autoscaler_will_remove_gets_no_new_traffic(
    calm: ApiCluster, tenant: Tenant, kubectl: Path, node: dict[str, Any]
) -> None:
    assert says(calm, 200, "/healthz")()
    tenant.kubectl(kubectl, "taint", "node", NODE, f"{TAINT}=1700000000:NoSchedule")
    calm.changed().shows(says(calm, 503, "/healthz"), "the taint")
    assert get(calm, HEALTHZ, "/healthz")[1]["nodeEligible"] is False
    assert says(calm, 200, "/livez")()

    tenant.kubectl(kubectl, "taint", "node", NODE, f"{TAINT}-")
    calm.changed().shows(says(calm, 200, "/healthz"), "no taint")

    tenant.kubectl(kubectl, "delete", "node", NODE)
    calm.changed().shows(says(calm, 503, "/healthz"), "the node deleted")
    assert says(calm, 200, "/livez")()


def test_a_health_check_port_follows_pods_that_end(calm: ApiCluster, tenant: Tenant) -> None:
    for pod in ("web-0", "web-1", "far-0"):
        tenant.run_pod(pod)
    tenant.expose("web", type="LoadBalancer", externalTrafficPolicy="Local")
    path = tenant.path("services", "web")
    calm.api.merge(f"{path}/status", {"status": {"loadBalancer": {"ingress": [{"ip": VIP}]}}})
    port = calm.api.get(path)["spec"]["healthCheckNodePort"]
    change = calm.changed()
    change.shows(counts(calm, port, 2), "the port with two local pods")
    change.shows(answered_by(calm, (VIP,), "web-0", "web-1", client="outside"), "the balancer's address")

    tenant.end_pod("web-0", grace_seconds=GRACE_SECONDS)
    change = calm.changed()
    change.shows(counts(calm, port, 1), "one of them ending")
    change.shows(answered_by(calm, (VIP,), "web-1", client="outside"), "traffic to the other")

    tenant.end_pod("web-1", grace_seconds=GRACE_SECONDS)
    change = calm.changed()
    change.shows(counts(calm, port, 0), "both ending")
    change.shows(answered_by(calm, (VIP,), "web-0", "web-1", client="outside"), "traffic while they end")

    tenant.run_pod("web-2")
    calm.changed().shows(counts(calm, port, 1), "a new pod")
    calm.api.delete(path)
    calm.changed().shows(lambda: get(calm, port)[0] == 0, "the port closed")
