"""`nodeagent connectivity` in a real cluster that nodeagent serves: all is well, what is broken is found, nothing is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent import __version__
from nodeagent.diagnosis.connectivity.objects import SELECTOR
from tests.conformance.serving_cluster import serving_cluster
from tests.harness.kubernetes.cluster import Cluster

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "dist" / f"nodeagent-{__version__}-amd64.tar"
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no release of Kubernetes"),
    pytest.mark.skipif(not IMAGE.exists(), reason="make image has not made the image"),
]
COMMAND = [sys.executable, "-m", "nodeagent", "connectivity"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving_cluster(IMAGE, tmp_path_factory.mktemp("overlay")) as cluster:
        yield cluster


def run(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    command = cluster.command(*COMMAND, "--kubeconfig", str(cluster.kubeconfig), *options)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def left(cluster: Cluster) -> list[Any]:
    found: list[Any] = cluster.get("namespaces", "-l", SELECTOR)["items"]
    return found


def test_everything_works_and_nothing_is_left(cluster: Cluster) -> None:
    done = run(cluster, "-o", "json")

    document = json.loads(done.stdout)
    assert [case for case in document["cases"] if not case["ok"]] == []
    assert done.returncode == 0
    assert {"pod, same node", "pod, other node", "node", "outside"} == {case["from"] for case in document["cases"]}
    assert any("IPv6" in case["way"] for case in document["cases"])
    assert left(cluster) == []


def test_a_node_port_that_is_dropped_on_one_node_fails_there_and_is_traced(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    # First packets only: the node's own masqueraded connections may have such a source port, and answers come to it.
    rules = 'iifname "eth0" tcp dport 30000-32767 tcp flags & (syn | ack) == syn drop'
    table = f"table ip planted {{\n chain c {{\n type filter hook prerouting priority -500;\n {rules}\n }}\n}}\n"
    node.run("sh", "-c", f"printf '%s' '{table}' | nft -f -")
    try:
        # What is dropped never settles; all else has to, on a busy machine too.
        done = run(cluster, "-o", "json", "--settle", "20")
    finally:
        node.run("nft", "delete", "table", "ip", "planted")

    failed = [case for case in json.loads(done.stdout)["cases"] if not case["ok"]]
    assert done.returncode == 1
    assert failed
    assert {case["way"].partition(",")[0] for case in failed} == {f"node port of {node.name}"}, json.dumps(failed)
    assert {case["way"].rpartition(", ")[2] for case in failed} == {"IPv4"}
    assert not [case for case in failed if "UDP" in case["way"]]
    assert all(case["trace"] for case in failed), "nodeagent on that node says what becomes of it"
    assert left(cluster) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(cluster: Cluster, number: signal.Signals) -> None:
    command = cluster.command(*COMMAND, "--kubeconfig", str(cluster.kubeconfig))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        cluster.wait_until(lambda: cluster.get("pods", "-A", "-l", SELECTOR)["items"], "test pods")
        running.send_signal(number)
        _, errors = running.communicate(timeout=300)

    assert running.returncode == 130
    assert "interrupted: removing the test pods" in errors
    assert "Traceback" not in errors
    assert left(cluster) == []


def test_a_killed_run_is_cleaned_up_after(cluster: Cluster) -> None:
    command = cluster.command(*COMMAND, "--kubeconfig", str(cluster.kubeconfig))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        cluster.wait_until(lambda: left(cluster), "the namespace")
        running.kill()
    assert left(cluster), "control: it had no chance"

    assert run(cluster, "--cleanup").returncode == 0
    assert left(cluster) == []


def test_an_image_that_cannot_be_had_is_one_line(cluster: Cluster) -> None:
    done = run(cluster, "--image", "registry.invalid/nothing:1")

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert any(reason in done.stderr for reason in ("ErrImagePull", "ImagePullBackOff"))
    assert left(cluster) == []
