"""Two servers on one directory: one runs the controllers, both are endpoints of the `kubernetes` Service."""

from collections.abc import Callable
from typing import Any

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/nodeagent-controllers"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3D"
Start = Callable[..., Any]


def holder(lease: Any) -> str:
    return str(lease.get("spec", {}).get("holderIdentity", ""))


def test_the_second_takes_over_when_the_first_stops(start: Start) -> None:
    first, second = start(advertise_address="192.168.77.1"), start(advertise_address="192.168.77.2")
    first.until(LEASE, lambda lease: holder(lease).endswith(f"_192.168.77.1:{first.server.port}"))
    both = sorted([("192.168.77.1", first.server.port), ("192.168.77.2", second.server.port)])

    def addresses(endpoints: Any) -> list[tuple[str, int]]:
        subsets = endpoints.get("subsets") or []
        return sorted((one["ip"], subset["ports"][0]["port"]) for subset in subsets for one in subset["addresses"])

    first.until(ENDPOINTS, lambda found: addresses(found) == both)
    first.stop()
    second.until(LEASE, lambda lease: holder(lease).endswith(f"_192.168.77.2:{second.server.port}"))
    second.until(ENDPOINTS, lambda found: addresses(found) == [("192.168.77.2", second.server.port)])
    web = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    assert second.call("POST", "/api/v1/namespaces/default/services", web).status == 201
    second.until(f"{SLICES}web", lambda slices: len(slices["items"]) == 1)
    lease = second.get(LEASE)
    assert lease["metadata"]["uid"]
    assert lease["spec"]["leaseTransitions"] == 1


def test_a_server_alone_in_memory_elects_nobody(start: Start) -> None:
    api = start(data_dir=None)
    web = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    assert api.call("POST", "/api/v1/namespaces/default/services", web).status == 201
    api.until(f"{SLICES}web", lambda slices: len(slices["items"]) == 1)
    assert api.call("GET", LEASE).status == 404
