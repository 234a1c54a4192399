"""`nodeagent explain` of a Service that the agent does not watch names the one cause; a Node that is not there is named."""

from pathlib import Path
from typing import Any

import pytest

from tests.harness.plain_api_server import plain_api_server
from tests.netns.commands.conftest import Node

NAMED = {"namespace": "default"}


def service(name: str, cluster_ip: str, **labels: str) -> dict[str, Any]:
    meta = {**NAMED, "name": name, "labels": labels}
    return {"kind": "Service", "metadata": meta, "spec": {"clusterIP": cluster_ip, "ports": [{"port": 80}]}}


OBJECTS = [
    service("db", "None"),
    service("meshed", "10.96.0.9", **{"service.kubernetes.io/service-proxy-name": "mesh"}),
    {"kind": "Node", "metadata": {"name": "node-a"}, "spec": {}},
]


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("db", 0, "healthy: nothing to program, it is headless"),
        (
            "meshed",
            1,
            "broken: this agent does not serve it, because its label service.kubernetes.io/service-proxy-name: mesh",
        ),
        ("dc", 1, "because the source of its objects has no Service of that name"),
    ],
    ids=["headless", "another proxy's", "not there"],
)
def test_the_api_server_knows_which(node: Node, tmp_path: Path, name: str, code: int, says: str) -> None:
    with plain_api_server(node.name, OBJECTS, tmp_path / "kubeconfig"):
        done = node.nodeagent("explain", name, "--kubeconfig", str(tmp_path / "kubeconfig"), "--node-name=node-a")
    assert says in done.stdout.partition("\n")[0], done.stdout + done.stderr
    assert done.returncode == code


def test_a_node_that_is_not_there(node: Node, tmp_path: Path) -> None:
    with plain_api_server(node.name, OBJECTS, tmp_path / "kubeconfig"):
        done = node.nodeagent("problems", "--kubeconfig", str(tmp_path / "kubeconfig"), "--node-name=node-q")
    assert done.returncode == 2
    assert "there is no Node node-q; did you mean node-a? (--node-name names another)" in done.stderr
