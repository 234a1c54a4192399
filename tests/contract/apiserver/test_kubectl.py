"""kubectl works unchanged: the commands people use, against this server."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

MANIFEST = """
apiVersion: v1
kind: Service
metadata: {name: app, labels: {tier: front}}
spec:
  selector: {app: app}
  ports: [{name: http, port: 80, targetPort: %d}]
"""


@pytest.fixture(scope="module")
def kubectl(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs kubectl in the namespace `demo`; returns its output, fails with what it said."""
    home = tmp_path_factory.mktemp("home")
    config = home / "config"
    cluster = {
        "server": f"https://127.0.0.1:{api.server.port}",
        "certificate-authority": str(api.server.credentials.authority),
    }
    config.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": api.token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "demo"}}],
                "current-context": "x",
            }
        )
    )
    environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(home)}

    def run(*arguments: str, stdin: str = "", fails: bool | None = False, **extra: str) -> str:
        result = subprocess.run(
            ["kubectl", *arguments],
            input=stdin,
            env={**environment, **extra},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert fails in (None, result.returncode != 0), result.stderr + result.stdout
        return result.stderr if fails else result.stdout

    run("create", "namespace", "demo")
    return run


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
    kubectl("diff", "-f", str(file), fails=True)
    assert "configured" in kubectl("apply", "-f", str(file))
    assert kubectl("get", "svc", "app", "-o", "jsonpath={.spec.ports[0].targetPort}") == "9090"
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", str(file))
    file.write_text((MANIFEST % 9090).replace("{tier: front}", "{}"))
    kubectl("apply", "--server-side", "-f", str(file))
    assert kubectl("get", "svc", "app", "-o", "jsonpath={.metadata.labels}") == ""
    mistaken = (MANIFEST % 1).replace("selector", "selectr")
    assert 'unknown field "spec.selectr"' in kubectl("apply", "-f", "-", stdin=mistaken, fails=True)


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


def test_describe_wait_and_delete(kubectl: Any) -> None:
    kubectl("create", "service", "clusterip", "gone", "--tcp=80")
    assert "Internal Traffic Policy:" in kubectl("describe", "svc", "gone")
    assert "condition met" in kubectl("wait", "--for=jsonpath={.spec.clusterIP}", "svc/gone", "--timeout=5s")
    assert "deleted" in kubectl("delete", "svc", "gone")
    assert "not found" in kubectl("get", "svc", "gone", fails=True)
    kubectl("create", "namespace", "soon-gone")
    kubectl("delete", "namespace", "soon-gone", "--timeout=20s")


def test_get_and_watch(kubectl: Any) -> None:
    kubectl("create", "service", "clusterip", "seen", "--tcp=80")
    watched = kubectl("get", "svc", "seen", "-w", "--output-watch-events", "--request-timeout=2s", fails=None)
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


def test_explain_and_discovery(kubectl: Any) -> None:
    assert "nodePort" in kubectl("explain", "service.spec.ports")
    assert "addressType" in kubectl("explain", "endpointslices", "--recursive")
    assert "endpointslices" in kubectl("api-resources", "--api-group=discovery.k8s.io")
    assert "networking.k8s.io/v1" in kubectl("api-versions")
    assert kubectl("get", "--raw", "/readyz") == "ok"
    assert "is running at" in kubectl("cluster-info")
    assert "Server Version: v1.36" in kubectl("version")
