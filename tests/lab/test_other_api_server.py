"""A lab may follow an API server that is not its own: nothing of the lab stays there."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.api import Access, Api
from tests.harness.warm_start import AGENT, WarmLauncher

COLLECTIONS = (
    "/api/v1/nodes",
    "/api/v1/namespaces/default/pods",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
)
SERVICES = "/api/v1/namespaces/default/services"


@pytest.fixture
def kubeconfig(tmp_path: Path, warm_launcher: WarmLauncher, eventually: Any) -> Iterator[Path]:
    """Of a server on loopback, with TLS and credentials."""
    path = tmp_path / "kubeconfig"
    command = [*AGENT, "apiserver", "--listen", "127.0.0.1:0", "--kubeconfig-out", str(path)]
    with open(os.devnull, "wb") as nothing:
        server = warm_launcher.start("", command, os.environ, nothing.fileno())
    try:
        eventually(path.exists)
        yield path
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def names(api: Api, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in api.call("GET", path)["items"]]


def test_a_lab_follows_it_with_its_credentials_and_cleans_up(bench: Any, kubeconfig: Path) -> None:
    access = Access.read(kubeconfig)
    api = Api(access)
    small = ("--nodes", "1", "--pods", "1")
    left = {"metadata": {"name": "node-1", "labels": {"app.kubernetes.io/managed-by": "nodeagent-lab-lab"}}}
    api.call("POST", "/api/v1/nodes", left)
    up = bench.do("up", *small, "--api", access.url, "--api-kubeconfig", str(kubeconfig))

    assert f"{access.url} answers" in up
    assert f"API server {access.url}" in bench.do("status")
    assert [names(api, path) for path in COLLECTIONS] == [["node-1"], ["echo-1-1"], ["node-1"]]
    assert (
        bench.run("fault", "api").errors
        == "nodeagent: the API server does not belong to the lab, so it is not stopped\n"
    )

    bench.do("down")
    assert [names(api, path) for path in COLLECTIONS] == [[], [], []]
    assert names(api, SERVICES) == ["kubernetes"]
    api.close()


def test_objects_that_are_not_of_the_lab_are_left_alone(bench: Any, kubeconfig: Path) -> None:
    access = Access.read(kubeconfig)
    api = Api(access)
    api.call("POST", "/api/v1/nodes", {"metadata": {"name": "node-1", "labels": {"of": "others"}}})
    outcome = bench.run("up", "--nodes", "1", "--api", access.url, "--api-kubeconfig", str(kubeconfig))

    assert (outcome.status, outcome.errors) == (
        1,
        "nodeagent: /api/v1/nodes/node-1 exists already, and does not belong to this lab\n",
    )
    (node,) = api.call("GET", "/api/v1/nodes")["items"]
    assert node["metadata"]["labels"] == {"of": "others"}
    assert list(bench.base.iterdir()) == []
    api.close()


def test_a_server_that_starts_at_the_same_time_is_waited_for(bench: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "nodeagent", "apiserver", "--listen", f"127.0.0.1:{port}", "--insecure"]
    with (
        bench.start("up", "--nodes", "1", "--pods", "1", "--api", url) as up,
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as server,
    ):
        _, errors = up.communicate(timeout=60)
        assert (up.returncode, errors) == (0, "")
        bench.do("down")
        server.terminate()


def test_a_server_that_wants_credentials_and_gets_none_is_one_line(bench: Any, kubeconfig: Path) -> None:
    outcome = bench.run("up", "--nodes", "1", "--api", Access.read(kubeconfig).url)

    assert outcome.status == 1
    assert outcome.errors.startswith("nodeagent: ")
    assert outcome.errors.count("\n") == 1
    assert list(bench.base.iterdir()) == []
