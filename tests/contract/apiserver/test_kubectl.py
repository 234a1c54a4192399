"""kubectl works unchanged: the commands people use, against this server."""

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.kinds.catalog import all_kinds
from tests.harness.effort import at_length

pytestmark = pytest.mark.slow

MANIFEST = """
apiVersion: v1
kind: Service
metadata: {name: app, labels: {tier: front}}
spec:
  selector: {app: app}
  ports: [{name: http, port: 80, targetPort: %d}]
"""


MISTAKEN = (MANIFEST % 1).replace("name: app", "name: mistaken").replace("selector", "selectr")
TOOLS = Path(__file__).parents[3] / ".tools"
PROGRAMS = {
    "installed": Path("kubectl"),
    "1.20": TOOLS / "kubectl-1.20" / "kubectl",
    "1.32": TOOLS / "kubectl-1.32" / "kubectl",
}
"""This machine's own, Debian 12's and Debian 13's; `make test` unpacks the latter two (tests/tools/fetch_kubectl.sh)."""


def release(name: str) -> Any:
    """A parameter for tests with one of `PROGRAMS`; a machine without it skips them, unless it says CI=true."""
    program = PROGRAMS[name]
    missing = shutil.which(program) is None and os.environ.get("CI") != "true"
    return pytest.param(program, id=f"kubectl {name}", marks=pytest.mark.skipif(missing, reason=f"no {program}"))


@pytest.fixture(scope="module")
def as_user(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Any]:
    """Makes of a kubectl what runs it in a new namespace and returns its output, or fails with what it said."""
    namespaces = itertools.count()
    cluster = {
        "server": f"https://127.0.0.1:{api.server.port}",
        "certificate-authority": str(api.server.credentials.authority),
    }

    def begin(program: Path) -> Any:
        namespace = f"demo-{next(namespaces)}"
        home = tmp_path_factory.mktemp("home")
        config = home / "config"
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": {"token": api.token}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
                    "current-context": "x",
                }
            )
        )
        # It lives for a moment: a quarter of its processor time would go into looking for garbage.
        environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(home), "GOGC": "off"}

        def run(*arguments: str, stdin: str = "", fails: bool | None = False, **extra: str) -> str:
            result = subprocess.run(
                [program, *arguments],
                input=stdin,
                env={**environment, **extra},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert fails in (None, result.returncode != 0), result.stderr + result.stdout
            if fails is None:
                return result.stdout + result.stderr
            return result.stderr if fails else result.stdout

        run("create", "namespace", namespace)
        return run

    return begin


@pytest.fixture(scope="module", params=[release(name) for name in ("1.20", "1.32", *at_length("installed"))])
def kubectl(as_user: Any, request: pytest.FixtureRequest) -> Any:
    """An old and a new kubectl, and at length the one installed, which may be as old as 1.20."""
    return as_user(request.param)


@pytest.fixture(scope="module", params=[release("1.32")])
def recent_kubectl(as_user: Any, request: pytest.FixtureRequest) -> Any:
    """For what 1.20 cannot do, and therefore the one installed perhaps not either."""
    return as_user(request.param)


@pytest.fixture(scope="module", params=[release("1.20")])
def old_kubectl(as_user: Any, request: pytest.FixtureRequest) -> Any:
    """For what only 1.20 does: it reads version 2 of the schema, in protobuf, and checks objects itself."""
    return as_user(request.param)


def test_create_and_get_in_every_output(kubectl: Any) -> None:
    kubectl("create", "service", "clusterip", "web", "--tcp=80:8080")
    assert "web" in kubectl("get", "services")
    assert "app=web" in kubectl("get", "svc", "web", "-o", "wide")
    assert json.loads(kubectl("get", "svc", "web", "-o", "json"))["spec"]["ports"][0]["targetPort"] == 8080
    assert "clusterIP: 10." in kubectl("get", "svc", "web", "-o", "yaml")
    assert kubectl("get", "svc", "web", "-o", "name").strip() == "service/web"
    assert kubectl("get", "svc", "web", "-o", "jsonpath={.spec.type}") == "ClusterIP"
    assert kubectl("get", "svc", "web", "-o", "go-template={{.metadata.name}}") == "web"
    assert kubectl("get", "svc", "web", "-o", "custom-columns=N:.metadata.name", "--no-headers").strip() == "web"
    assert "kubernetes" in kubectl("get", "svc,ep,endpointslices,ns,nodes,pods,events,cm,secrets,sa,leases", "-A")
    assert "10.96.0.0/12" in kubectl("get", "servicecidrs,ipaddresses")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["service", "nodeport", "np", "--tcp=80"], id="service nodeport"),
        pytest.param(["service", "loadbalancer", "lb", "--tcp=80"], id="service loadbalancer"),
        pytest.param(["service", "externalname", "en", "--external-name=example.com"], id="service externalname"),
        pytest.param(["configmap", "cm", "--from-literal=a=b"], id="configmap"),
        pytest.param(["secret", "generic", "s", "--from-literal=a=b"], id="secret"),
        pytest.param(["serviceaccount", "sa"], id="serviceaccount"),
    ],
)
def test_create(kubectl: Any, arguments: list[str]) -> None:
    assert "created" in kubectl("create", *arguments)


def test_a_secret_sent_as_protobuf_is_stored_whole(kubectl: Any) -> None:
    kubectl("create", "secret", "generic", "binary", "--from-literal=a=b", "--type=example.com/kind")
    found = json.loads(kubectl("get", "secret", "binary", "-o", "json"))
    assert (found["data"], found["type"]) == ({"a": "Yg=="}, "example.com/kind")


def test_apply_on_the_client_then_on_the_server(kubectl: Any, tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(MANIFEST % 8080)
    assert "created" in kubectl("apply", "-f", str(file))
    assert "unchanged" in kubectl("apply", "-f", str(file))
    file.write_text(MANIFEST % 9090)
    assert "+    targetPort: 9090" in kubectl("diff", "-f", str(file), fails=None)
    assert "dry run" in kubectl("apply", "--dry-run=server", "-f", str(file))
    assert "configured" in kubectl("apply", "-f", str(file))
    assert kubectl("get", "svc", "app", "-o", "jsonpath={.spec.ports[0].targetPort}") == "9090"
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", str(file))
    file.write_text((MANIFEST % 9090).replace("{tier: front}", "{}"))
    kubectl("apply", "--server-side", "-f", str(file))
    assert kubectl("get", "svc", "app", "-o", "jsonpath={.metadata.labels}") == ""


def test_a_mistaken_field_is_named_and_nothing_stored(kubectl: Any) -> None:
    said = kubectl("apply", "-f", "-", stdin=MISTAKEN, fails=True)
    assert "unknown field" in said
    assert "selectr" in said
    assert "not found" in kubectl("get", "svc", "mistaken", fails=True)


def test_an_old_client_that_checks_nothing_is_warned(old_kubectl: Any) -> None:
    said = old_kubectl("apply", "--validate=false", "-f", "-", stdin=MISTAKEN, fails=None)
    assert 'Warning: unknown field "spec.selectr"' in said


def test_an_old_client_checks_before_it_sends(old_kubectl: Any) -> None:
    said = old_kubectl("create", "-f", "-", stdin=MISTAKEN.replace("port: 80", "port: eighty"), fails=True)
    assert 'unknown field "selectr" in io.k8s.api.core.v1.ServiceSpec' in said
    assert 'ServicePort.port: got "string", expected "integer"' in said


def test_change(kubectl: Any) -> None:
    kubectl("create", "service", "clusterip", "chg", "--tcp=80")
    kubectl("label", "svc", "chg", "x=y")
    kubectl("annotate", "svc", "chg", "example.com/n=1")
    kubectl("patch", "svc", "chg", "-p", '{"spec":{"sessionAffinity":"ClientIP"}}')
    kubectl("patch", "svc", "chg", "--type=json", "-p", '[{"op":"add","path":"/metadata/labels/z","value":"1"}]')
    kubectl("edit", "svc", "chg", KUBE_EDITOR="sed -i s/timeoutSeconds:.*/timeoutSeconds:\\ 60/")
    kubectl("expose", "service", "chg", "--name=chg-x", "--port=81")
    found = json.loads(kubectl("get", "svc", "chg", "-o", "json"))
    assert found["metadata"]["labels"] == {"app": "chg", "x": "y", "z": "1"}
    assert found["spec"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 60}}
    assert kubectl("get", "svc", "chg-x", "-o", "jsonpath={.spec.selector}") == '{"app":"chg"}'


def test_describe_and_delete(kubectl: Any) -> None:
    kubectl("create", "service", "clusterip", "gone", "--tcp=80")
    described = kubectl("describe", "svc", "gone")
    assert "app=gone" in described
    assert "80/TCP" in described
    assert "deleted" in kubectl("delete", "svc", "gone")
    assert "not found" in kubectl("get", "svc", "gone", fails=True)


def test_delete_waits_until_a_namespace_is_gone(kubectl: Any) -> None:
    kubectl("create", "namespace", "soon-gone")
    kubectl("delete", "namespace", "soon-gone", "--timeout=50s")
    assert "not found" in kubectl("get", "namespace", "soon-gone", fails=True)


def test_wait_for_a_condition_and_for_an_end(kubectl: Any) -> None:
    kubectl("create", "configmap", "brief")
    assert "timed out" in kubectl("wait", "--for=delete", "cm/brief", "--timeout=1s", fails=True)
    kubectl("delete", "cm", "brief", "--wait=false")
    kubectl("wait", "--for=delete", "cm/brief", "--timeout=50s", fails=None)
    assert "not found" in kubectl("get", "cm", "brief", fails=True)


def test_describe_and_wait_in_the_recent_ways(recent_kubectl: Any) -> None:
    recent_kubectl("create", "service", "clusterip", "here", "--tcp=80")
    assert "Internal Traffic Policy:" in recent_kubectl("describe", "svc", "here")
    said = recent_kubectl("wait", "--for=jsonpath={.spec.clusterIP}", "svc/here", "--timeout=50s")
    assert "condition met" in said


def test_a_created_token_can_be_used(recent_kubectl: Any) -> None:
    recent_kubectl("create", "serviceaccount", "guest")
    token = recent_kubectl("create", "token", "guest", "--duration=20m").strip()
    assert "kubernetes" in recent_kubectl("get", "services", "-A", f"--token={token}")
    assert "is forbidden" in recent_kubectl("create", "configmap", "x", f"--token={token}", fails=True)


def test_get_and_watch(kubectl: Any) -> None:
    kubectl("create", "service", "clusterip", "seen", "--tcp=80")
    watched = kubectl("get", "svc", "seen", "-w", "--output-watch-events", "--request-timeout=3s", fails=None)
    assert "ADDED" in watched
    assert "seen" in watched


def test_describe_a_node_and_a_pod(kubectl: Any) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
    }
    for body in (node, pod):
        kubectl("apply", "-f", "-", stdin=json.dumps(body))
    assert "Name:" in kubectl("describe", "node", "n1")
    assert "Containers:" in kubectl("describe", "pod", "p")
    assert "Pending" in kubectl("get", "pods")


def test_discovery(kubectl: Any) -> None:
    assert "endpointslices" in kubectl("api-resources", "--api-group=discovery.k8s.io")
    assert "networking.k8s.io/v1" in kubectl("api-versions")
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert "is running at" in kubectl("cluster-info")
    assert json.loads(kubectl("version", "-o", "json"))["serverVersion"]["minor"] == "36"


def test_explain(kubectl: Any) -> None:
    assert "The port on each node" in kubectl("explain", "services.spec.ports")
    described = kubectl("explain", "endpointslices", "--recursive").split()
    assert {"addressType", "conditions", "serving"} <= set(described)


def test_every_kind_is_explained(kubectl: Any) -> None:
    for row in all_kinds().rows:
        said = kubectl("explain", row.plural, f"--api-version={row.group_version}")
        assert row.kind in " ".join(said.splitlines()[:2])


def test_can_i_agrees_with_what_is_allowed(kubectl: Any) -> None:
    account = "--as=system:serviceaccount:default:default"
    assert kubectl("auth", "can-i", "delete", "services").strip() == "yes"
    assert kubectl("auth", "can-i", "list", "services", account).strip() == "yes"
    assert kubectl("auth", "can-i", "get", "secrets", account, fails=None).split()[0] == "no"
    kubectl("get", "configmaps", account)
    assert "forbidden" in kubectl("get", "secrets", account, fails=True)


def test_whoami_names_the_user(recent_kubectl: Any) -> None:
    assert "system:masters" in recent_kubectl("auth", "whoami")
    assert "jane" in recent_kubectl("auth", "whoami", "--as=jane")


def test_a_deployment_is_applied_with_a_warning(kubectl: Any) -> None:
    said = kubectl("create", "deployment", "quiet", "--image=registry.example/web:1", fails=None)
    assert ("created" in said, "makes no pods" in said) == (True, True)
    assert "0/1" in kubectl("get", "deployments")
    kubectl("set", "image", "deployment/quiet", "web=registry.example/web:2")
    assert "web:2" in kubectl("get", "deploy", "quiet", "-o", "wide")
    assert "RollingUpdate" in kubectl("describe", "deployment", "quiet", fails=None)
