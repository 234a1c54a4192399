"""With `endpointsAPI: endpoints` the agent follows v1 Endpoints, and only them."""

import pytest

from tests.harness.api_cluster import ApiCluster, Tenant, answered_by
from tests.harness.cluster import TARGET_PORT


@pytest.fixture(scope="module")
def legacy(shaken: ApiCluster) -> ApiCluster:
    """A cluster whose agent reads Endpoints."""
    shaken.start_agent("--endpoints-api", "endpoints")
    printed = "\n".join(shaken.agent.lines)
    assert "listed resource=endpoints " in printed
    assert "resource=endpointslices" not in printed
    return shaken


def test_the_endpoints_of_a_selector_are_followed(legacy: ApiCluster, shaken_tenant: Tenant) -> None:
    """Endpoints have one family, that of the service's first address."""
    shaken_tenant.expose("web")
    change = legacy.changed()
    first, second = shaken_tenant.cluster_ips("web")
    change.shows(answered_by(legacy, (first, second), "refused"), "a service without endpoints")

    for pods in (("web-0",), ("web-0", "web-1"), ("web-0", "web-1", "far-0")):
        shaken_tenant.run_pod(pods[-1])
        legacy.changed().shows(answered_by(legacy, (first,), *pods), f"{len(pods)} pods")
    assert answered_by(legacy, (second,), "refused")()

    shaken_tenant.set_ready("web-1", ready=False)
    legacy.changed().shows(answered_by(legacy, (first,), "web-0", "far-0"), "one that is not ready")
    shaken_tenant.end_pod("web-0", grace_seconds=30)
    legacy.changed().shows(answered_by(legacy, (first,), "far-0"), "one that ends")
    shaken_tenant.end_pod("far-0")
    legacy.changed().shows(answered_by(legacy, (first,), "refused"), "none")


def test_endpoints_written_by_hand_are_followed(legacy: ApiCluster, shaken_tenant: Tenant) -> None:
    shaken_tenant.expose("web", selector=None, ipFamilyPolicy="SingleStack")
    addresses = shaken_tenant.cluster_ips("web")

    def subsets(*pods: str) -> list[dict[str, object]]:
        places = [{"ip": legacy.world[pod].address()} for pod in pods]
        return [{"addresses": places, "ports": [{"name": "http", "port": TARGET_PORT}]}]

    body = {"metadata": {"name": "web"}, "subsets": subsets("web-0", "far-0")}
    legacy.api.create(shaken_tenant.path("endpoints"), body)
    legacy.changed().shows(answered_by(legacy, addresses, "web-0", "far-0"), "the endpoints")
    legacy.api.merge(shaken_tenant.path("endpoints", "web"), {"subsets": subsets("web-2")})
    legacy.changed().shows(answered_by(legacy, addresses, "web-2"), "others")
    legacy.api.delete(shaken_tenant.path("endpoints", "web"))
    legacy.changed().shows(answered_by(legacy, addresses, "refused"), "none")


def test_a_restart_of_the_server_is_made_up_for(legacy: ApiCluster, shaken_tenant: Tenant) -> None:
    shaken_tenant.run_pod("web-0")
    shaken_tenant.expose("web")
    addresses = shaken_tenant.cluster_ips("web")[:1]
    legacy.agent.wait_until(answered_by(legacy, addresses, "web-0"), "the service")
    legacy.server.kill()
    legacy.restart_server()
    shaken_tenant.run_pod("web-1")
    legacy.changed().shows(answered_by(legacy, addresses, "web-0", "web-1"), "a second pod", within=3.0)
