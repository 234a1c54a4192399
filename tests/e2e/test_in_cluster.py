"""The API server is reached as pods reach it: at the ClusterIP of `kubernetes`, with the CA and a token in files."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.api_cluster import CONTROL_ADDRESSES, PORT, ApiCluster, Tenant, answered_by
from tests.harness.cluster import NODE
from tests.harness.warm_start import AGENT

API_ADDRESS = "10.96.0.1"
BACK_SECONDS = 3.0
SERVICE_ACCOUNT = """
set -e
mount -t tmpfs none /run
files=/run/secrets/kubernetes.io/serviceaccount
mkdir -p $files
cp "$DATA/pki/ca.crt" $files/ca.crt
grep ,admin, "$DATA/pki/tokens.csv" | cut -d, -f1 > $files/token
printf default > $files/namespace
exec "$@"
"""
"""What the kubelet does for a pod; `ip netns exec` gives each program mounts of its own, so nothing of it stays."""


def as_pod(cluster: ApiCluster, *argv: str) -> Sequence[str]:
    """The command with the environment and the files that a pod has."""
    environment = (f"DATA={cluster.data}", f"KUBERNETES_SERVICE_HOST={API_ADDRESS}", "KUBERNETES_SERVICE_PORT=443")
    return ("env", "-u", "KUBECONFIG", "HOME=/run", *environment, "sh", "-c", SERVICE_ACCOUNT, "sh", *argv)


@pytest.mark.parametrize("member", ["caller", NODE])
def test_kubectl_finds_the_server_with_what_a_pod_has(calm: ApiCluster, kubectl: Path, member: str) -> None:
    listed = calm.world.run(member, as_pod(calm, str(kubectl), "get", "endpoints", "kubernetes")).stdout
    assert f"{CONTROL_ADDRESSES[0]}:{PORT}" in listed
    assert not Path("/run/secrets/kubernetes.io").exists()


def test_the_agent_itself_goes_through_the_service_it_programs(shaken: ApiCluster, shaken_tenant: Tenant) -> None:
    """Its predecessor has left the rules; it comes back through them after a restart of its own and of the server."""
    shaken.start_agent(kubeconfig=False, command=as_pod(shaken, *AGENT))
    assert "source=in-cluster" in shaken.agent.wait_for_line("starting node=")
    shaken_tenant.run_pod("web-0")
    shaken_tenant.expose("web")
    addresses = shaken_tenant.cluster_ips("web")
    shaken.changed().shows(answered_by(shaken, addresses, "web-0"), "the service")

    shaken.server.kill()
    shaken.restart_server()
    shaken_tenant.run_pod("web-1")
    shaken.changed().shows(answered_by(shaken, addresses, "web-0", "web-1"), "a second pod", within=BACK_SECONDS)

    shaken.agent.kill()
    shaken.restart_agent()
    shaken_tenant.end_pod("web-0")
    shaken.changed().shows(answered_by(shaken, addresses, "web-1"), "one pod less")


def test_the_servers_certificate_names_the_service(calm: ApiCluster, kubectl: Path) -> None:
    token = next(line for line in (calm.data / "pki" / "tokens.csv").read_text().splitlines() if ",reader," in line)
    arguments = [f"--server=https://{API_ADDRESS}", f"--token={token.split(',')[0]}"]
    arguments += [f"--certificate-authority={calm.data}/pki/ca.crt", "--kubeconfig=/dev/null"]
    for name in ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"):
        found = calm.world.run("caller", [str(kubectl), *arguments, f"--tls-server-name={name}", "get", "services"])
        assert API_ADDRESS in found.stdout
    other = calm.world.run(
        "caller", [str(kubectl), *arguments, "--tls-server-name=other.example", "get", "services"], check=False
    )
    assert "certificate is valid for" in other.stderr
    refused = calm.world.run("caller", [str(kubectl), *arguments, "delete", "service", "kubernetes"], check=False)
    assert "Forbidden" in refused.stderr
