"""What changes on the API server is followed within a second."""

from itertools import pairwise
from pathlib import Path

from nodeagent.model.addresses import Protocol
from tests.harness.api_cluster import ApiCluster, Tenant, all_answering, answered_by
from tests.harness.lost_packets import PATIENT, nothing_resent

GRACE_SECONDS = 30
PROXY_NAME = "service.kubernetes.io/service-proxy-name"


def test_endpoints_come_and_go(calm: ApiCluster, tenant: Tenant) -> None:
    tenant.expose("web")
    change = calm.changed()
    addresses = tenant.cluster_ips("web")
    change.shows(answered_by(calm, addresses, "refused"), "a service without endpoints")

    pods: list[str] = []
    for more in (["web-0"], ["web-1"], ["web-2", "far-0"]):
        for pod in more:
            tenant.run_pod(pod)
        pods += more
        change = calm.changed()
        change.shows(answered_by(calm, addresses, *pods), f"scaled up to {len(pods)}")

    for pod in ("web-1", "far-0"):
        tenant.end_pod(pod)
    change = calm.changed()
    change.shows(answered_by(calm, addresses, "web-0", "web-2"), "scaled down to 2")

    tenant.set_ready("web-2", ready=False)
    change = calm.changed()
    change.shows(answered_by(calm, addresses, "web-0"), "one that is not ready")

    tenant.end_pod("web-0")
    change = calm.changed()
    change.shows(answered_by(calm, addresses, "refused"), "none that is ready")


def test_no_connection_fails_while_endpoints_are_replaced(calm: ApiCluster, tenant: Tenant) -> None:
    """A rolling update: a new pod is ready before an old one is asked to end, and no client notices."""
    tenant.run_pod("web-0")
    tenant.expose("web")
    addresses = tenant.cluster_ips("web")
    calm.changed().shows(answered_by(calm, addresses, "web-0"), "the service")

    order = ("web-0", "web-1", "web-2", "far-0") * 3
    loads = [calm.world["caller"].load(address, 80, interval=0.002, timeout=PATIENT) for address in addresses]
    with nothing_resent(calm.world, ["caller"]):
        for old, new in pairwise(order):
            tenant.run_pod(new)
            calm.changed().shows(answered_by(calm, addresses, old, new), f"{new} beside {old}")
            tenant.end_pod(old)
            calm.changed().shows(answered_by(calm, addresses, new), f"{new} alone")
        reports = [load.stop() for load in loads]

    for report in reports:
        assert not report.failures
        assert set(report.names) == set(order)


def test_a_terminating_pod_gets_new_connections_only_when_there_is_no_other(calm: ApiCluster, tenant: Tenant) -> None:
    for pod in ("web-0", "web-1"):
        tenant.run_pod(pod)
    tenant.expose("web")
    addresses = tenant.cluster_ips("web")
    calm.changed().shows(answered_by(calm, addresses, "web-0", "web-1"), "both")

    with calm.world["caller"].hold(addresses[0], 80, count=20) as held:
        before = [answer.name for answer in held.opened]
        tenant.end_pod("web-0", grace_seconds=GRACE_SECONDS)
        calm.changed().shows(answered_by(calm, addresses, "web-1"), "the one that stays")
        assert [answer.name for answer in held.ask()] == before

    tenant.end_pod("web-1", grace_seconds=GRACE_SECONDS)
    calm.changed().shows(answered_by(calm, addresses, "web-0", "web-1"), "both, as a last resort")

    tenant.run_pod("web-2")
    calm.changed().shows(answered_by(calm, addresses, "web-2"), "one that is ready")


def test_a_service_given_to_another_proxy_and_back(calm: ApiCluster, tenant: Tenant, kubectl: Path) -> None:
    tenant.run_pod("web-0")
    tenant.expose("web")
    addresses = tenant.cluster_ips("web")
    calm.changed().shows(answered_by(calm, addresses, "web-0"), "the service")

    for _ in range(2):
        tenant.kubectl(kubectl, "label", "service", "web", f"{PROXY_NAME}=another")
        calm.changed().shows(answered_by(calm, addresses, "timeout"), "given away")
        tenant.kubectl(kubectl, "label", "service", "web", f"{PROXY_NAME}-")
        calm.changed().shows(answered_by(calm, addresses, "web-0"), "taken back")


def test_a_service_that_is_deleted_and_comes_back_with_another_address(calm: ApiCluster, tenant: Tenant) -> None:
    tenant.run_pod("web-0")
    first = tenant.expose("web", clusterIP="10.96.77.1", clusterIPs=["10.96.77.1"])
    calm.changed().shows(answered_by(calm, ("10.96.77.1",), "web-0"), "the service")

    calm.api.delete(tenant.path("services", "web"))
    second = tenant.expose("web", clusterIP="10.96.77.2", clusterIPs=["10.96.77.2"])
    change = calm.changed()
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    change.shows(answered_by(calm, ("10.96.77.2",), "web-0"), "the new address")
    change.shows(answered_by(calm, ("10.96.77.1",), "timeout"), "the old address gone")


def test_a_service_becomes_a_name_and_a_service_again(calm: ApiCluster, tenant: Tenant) -> None:
    tenant.run_pod("web-0")
    tenant.expose("web")
    before = tenant.cluster_ips("web")
    calm.changed().shows(answered_by(calm, before, "web-0"), "the service")

    path = tenant.path("services", "web")
    name = {"type": "ExternalName", "externalName": "example.com", "clusterIP": "", "clusterIPs": None}
    calm.api.merge(path, {"spec": name})
    calm.changed().shows(answered_by(calm, before, "timeout"), "only a name")

    calm.api.merge(path, {"spec": {"type": "ClusterIP", "externalName": None, "ipFamilyPolicy": "PreferDualStack"}})
    change = calm.changed()
    after = tenant.cluster_ips("web")
    change.shows(answered_by(calm, after, "web-0"), "a service again")


def test_a_change_of_policy_port_or_protocol(calm: ApiCluster, tenant: Tenant) -> None:
    """internalTrafficPolicy Local leaves a pod of this node only its node's endpoints; a new port is one more frontend."""
    for pod in ("web-0", "far-0"):
        tenant.run_pod(pod)
    tenant.expose("web")
    addresses = tenant.cluster_ips("web")
    calm.changed().shows(answered_by(calm, addresses, "web-0", "far-0"), "the service")

    path = tenant.path("services", "web")
    calm.api.merge(path, {"spec": {"internalTrafficPolicy": "Local"}})
    calm.changed().shows(answered_by(calm, addresses, "web-0"), "the local one")
    calm.api.merge(path, {"spec": {"internalTrafficPolicy": "Cluster"}})
    calm.changed().shows(answered_by(calm, addresses, "web-0", "far-0"), "both")

    ports = [
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 8080},
    ]
    calm.api.merge(path, {"spec": {"ports": ports}})
    caller = calm.world["caller"]
    calm.changed().shows(
        lambda: all(not caller.ask(a, 53, Protocol.UDP, timeout=0.15).failures for a in addresses), "the UDP port"
    )
    calm.api.merge(path, {"spec": {"ports": ports[:1]}})
    calm.changed().shows(
        lambda: all(caller.ask(a, 53, Protocol.UDP, timeout=0.15).failures for a in addresses), "no UDP port"
    )
    assert all_answering(calm, addresses) == {"web-0", "far-0"}
