"""Where the agent's source is the API server, the first line of every command says that all is well, and it exits 0."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import KUBECTLS
from tests.harness.api_cluster import CONTROL, Tenant
from tests.harness.cluster import NODE
from tests.harness.warm_start import AGENT

pytestmark = pytest.mark.kernel
PODS = ("web-0", "web-1", "far-0")
PATIENCE = 30.0
SAYS = {
    **dict.fromkeys(("check", "explain", "problems"), "healthy"),
    "trace": "arrives: ",
    "diff": "same: ",
    "plan": "nothing would change",
}


def first_lines(tenant: Tenant, directory: Path) -> dict[str, tuple[int, str]]:
    """Command → its exit code and first line, of those that do not say that all is well. directory: for manifests."""
    cluster, web = tenant.cluster, f"{tenant.name}/web"
    wanted = "services,endpointslices,nodes,servicecidrs"
    kubectl = (str(KUBECTLS["kubectl 1.32"]), "--kubeconfig", str(cluster.kubeconfig))
    objects = cluster.world.run(CONTROL, [*kubectl, "get", wanted, "-A", "-o", "yaml"]).stdout
    (directory / "all.yaml").write_text(objects)
    commands = (
        ("check",),
        ("explain", "--probe"),
        ("explain", web),
        ("explain", web, "--kubeconfig", str(cluster.kubeconfig), "--node-name", NODE),
        ("explain", f"{tenant.name}/local"),
        ("problems",),
        ("trace", f"node/{NODE}", web),
        ("diff",),
        ("plan", "--manifests", str(directory)),
        ("show",),
        ("journal",),
        ("log-level",),
        ("top", "--once", "--every", "0.1"),
        ("dns", f"web.{tenant.name}", "--kubeconfig", str(cluster.kubeconfig)),
    )
    wrong = {}
    for words in commands:
        done = cluster.world.run(NODE, [*AGENT, *words], check=False)
        line = (done.stdout or done.stderr).partition("\n")[0]
        if done.returncode or not line.startswith(SAYS.get(words[0], "")):
            wrong[" ".join(words)] = (done.returncode, line)
    return wrong


def waited_for(found: Callable[[], dict[str, tuple[int, str]]]) -> dict[str, tuple[int, str]]:
    """What is found, once that is nothing: controllers write endpoints in a moment."""
    end = time.monotonic() + PATIENCE
    while (wrong := found()) and time.monotonic() < end:
        time.sleep(0.2)
    return wrong


@pytest.fixture
def served(tenant: Tenant) -> Tenant:
    """Services with endpoints, of which some are on this node."""
    for pod in PODS:
        tenant.run_pod(pod)
    tenant.expose("web")
    tenant.expose("local", internalTrafficPolicy="Local")
    tenant.expose("ported", type="NodePort")
    return tenant


def test_every_command_says_that_all_is_well_until_a_service_has_no_endpoint(served: Tenant, tmp_path: Path) -> None:
    assert waited_for(lambda: first_lines(served, tmp_path)) == {}

    served.expose("lonely", selector={"app": "nobody"})

    def unseen() -> dict[str, tuple[int, str]]:
        done = served.cluster.world.run(NODE, [*AGENT, "explain"], check=False)
        line = done.stdout.partition("\n")[0]
        return {} if (done.returncode, line[:14]) == (1, "not healthy: 1") else {"explain": (done.returncode, line)}

    assert waited_for(unseen) == {}, "the control"
