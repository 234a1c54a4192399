"""What is applied with kubectl, old or new, is answered by the pods it selects."""

from pathlib import Path

import pytest

from nodeagent.lab.net.survey import evenness
from tests.harness.api_cluster import ApiCluster, Tenant, all_answering, answered_by
from tests.harness.cluster import NODE

PODS = ("web-0", "web-1", "web-2")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ipFamilyPolicy: RequireDualStack
  ports: [{name: http, port: %d, targetPort: 8080}]
"""


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["on the client", "on the server"])
def test_a_service_is_applied_changed_and_deleted(
    calm: ApiCluster, tenant: Tenant, kubectl: Path, how: tuple[str, ...]
) -> None:
    for pod in PODS:
        tenant.run_pod(pod)

    tenant.kubectl(kubectl, "apply", *how, "-f", "-", stdin=SERVICE % 80)
    change = calm.changed()
    addresses = tenant.cluster_ips("web")
    assert len(addresses) == 2
    change.shows(answered_by(calm, addresses, *PODS), "the service")
    for address in addresses:
        assert evenness(calm.world["caller"].ask(address, 80, count=300, workers=5).names, PODS) > 1e-8

    tenant.kubectl(kubectl, "apply", *how, "-f", "-", stdin=SERVICE % 81)
    change = calm.changed()
    change.shows(answered_by(calm, addresses, *PODS, port=81), "the other port")
    assert all_answering(calm, addresses, 80) == {"refused"}

    (node_port,) = (port["nodePort"] for port in calm.api.get(tenant.path("services", "web"))["spec"]["ports"])
    calm.agent.wait_until(
        answered_by(calm, calm.world[NODE].addresses, *PODS, port=node_port, client="outside"), "the node port"
    )

    tenant.kubectl(kubectl, "delete", "service", "web")
    change = calm.changed()
    change.shows(answered_by(calm, addresses, "timeout", port=81), "the service gone")


def test_a_pod_in_another_state_or_elsewhere_does_not_answer(calm: ApiCluster, tenant: Tenant, kubectl: Path) -> None:
    tenant.run_pod("web-0")
    tenant.run_pod("web-1", ready=False)
    tenant.run_pod("web-2", labels={"app": "other"})
    tenant.kubectl(kubectl, "apply", "-f", "-", stdin=SERVICE % 80)
    change = calm.changed()
    addresses = tenant.cluster_ips("web")
    change.shows(answered_by(calm, addresses, "web-0"), "the service")

    tenant.kubectl(kubectl, "label", "pod", "web-2", "app=web", "--overwrite")
    change = calm.changed()
    change.shows(answered_by(calm, addresses, "web-0", "web-2"), "the label")

    tenant.kubectl(kubectl, "label", "pod", "web-0", "app-")
    change = calm.changed()
    change.shows(answered_by(calm, addresses, "web-2"), "the label gone")


def test_without_a_service_nothing_of_the_tenant_is_in_the_kernel(
    calm: ApiCluster, tenant: Tenant, kubectl: Path
) -> None:
    tenant.run_pod("web-0")
    tenant.kubectl(kubectl, "apply", "-f", "-", stdin=SERVICE % 80)
    change = calm.changed()
    addresses = tenant.cluster_ips("web")
    change.shows(answered_by(calm, addresses, "web-0"), "the service")

    tenant.kubectl(kubectl, "delete", "namespace", tenant.name)
    change = calm.changed()
    change.shows(answered_by(calm, addresses, "timeout"), "the namespace gone")
    ruleset = calm.world.nft(NODE, "list ruleset")
    assert not [address for address in addresses if f" {address} " in ruleset]
