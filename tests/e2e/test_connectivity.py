"""`nodeagent connectivity` where it cannot try anything: one line, no namespace left."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.diagnosis.connectivity.objects import LABEL
from nodeagent.lab.api import Access, Api
from tests.harness.api_processes import Process

COMMAND = [sys.executable, "-m", "nodeagent", "connectivity"]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("options", [[], ["--cleanup"]], ids=["try", "clean up"])
def test_without_a_kubeconfig_it_is_one_line(tmp_path: Path, options: list[str]) -> None:
    done = run("--kubeconfig", str(tmp_path / "nothing"), *options)

    assert done.returncode == 2
    assert done.stderr == f"nodeagent: kubeconfig {tmp_path}/nothing: No such file or directory\n"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Of our own API server, which has nodes and namespaces and runs no pods."""
    server = Process(tmp_path, "api")
    path, end = tmp_path / "kubeconfig-api", time.monotonic() + 60
    while server.url is None and time.monotonic() < end:
        time.sleep(0.05)
    yield path
    server.end()


def test_without_a_node_that_is_ready_it_is_one_line(kubeconfig: Path) -> None:
    done = run("--kubeconfig", str(kubeconfig))

    assert done.returncode == 2
    assert done.stderr.endswith(": no node is ready, so that no pod can run\n")
    assert done.stderr.count("\n") == 1


def test_where_no_pod_can_run_it_says_so_and_leaves_nothing(kubeconfig: Path) -> None:
    with Api(Access.read(kubeconfig)) as api:
        api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        api.call("PATCH", "/api/v1/nodes/n1/status", ready, content_type="application/merge-patch+json")

        done = run("--kubeconfig", str(kubeconfig))

        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].endswith("has no DaemonSets: no pods can run in this cluster")
        items = api.call("GET", "/api/v1/namespaces")["items"]
        assert [item["metadata"]["name"] for item in items if LABEL in item["metadata"].get("labels", {})] == []
