"""Clusters of the release that KUBERNETES names: pods run and reach each other, nodes share nothing, and nothing is left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import our_namespaces
from tests.harness.kubernetes import control_groups, images
from tests.harness.kubernetes.cluster import FILES, Cluster, sweep
from tests.harness.kubernetes.network_plugin import PLUGINS
from tests.harness.kubernetes.release import Release

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no release of Kubernetes"),
]
SERVER = {"app": "server"}
PORT = 8080
HOLD = """
import sys
from tests.harness.kubernetes.cluster import Cluster
from tests.harness.kubernetes.release import Release
with Cluster(Release.of_environment(), [], count=1):
    print("up", flush=True)
    sys.stdin.readline()
"""


def pod(name: str, node: str) -> dict[str, object]:
    """An HTTP server."""
    image = images.tag(Release.of_environment(), "agnhost")
    container = {"name": "server", "image": image, "args": ["netexec", f"--http-port={PORT}"]}
    specification = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": SERVER}, "spec": specification}


@pytest.fixture(scope="module", params=sorted(PLUGINS))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    release = Release.of_environment()
    with Cluster(release, [images.make(release)], plugin=PLUGINS[request.param]) as cluster:
        yield cluster


def test_images_are_made_once_for_a_release() -> None:
    assert images.make(Release.of_environment()) == images.make(Release.of_environment())


def test_pods_of_both_nodes_reach_each_other(cluster: Cluster) -> None:
    names = [f"on-{node.name}" for node in cluster.nodes]
    for name, node in zip(names, cluster.nodes, strict=True):
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod(name, node.name)))
    cluster.kubectl("wait", "--for=condition=Ready", "pod", *names)

    addresses = [entry["ip"] for entry in cluster.get("pod", names[1])["status"]["podIPs"]]
    assert len(addresses) == 2
    for address in addresses:
        shown = f"[{address}]" if ":" in address else address
        answer = cluster.kubectl("exec", names[0], "--", "curl", "-sS", "-m", "10", f"http://{shown}:{PORT}/hostname")
        assert answer == names[1]


def test_a_node_sees_its_own_processes_and_files_only(cluster: Cluster) -> None:
    first, second = cluster.nodes
    first.run("sh", "-c", "mkdir -p /run/nodeagent && touch /run/nodeagent/here")

    assert not second.run("test", "-e", "/run/containerd/containerd.sock")
    assert second.run("test", "-e", "/run/nodeagent/here", check=False)
    assert not Path("/run/nodeagent/here").exists()
    assert first.output("hostname").strip() == first.name
    assert first.output("pgrep", "-cx", "kubelet").strip() == "1"


def test_nothing_is_left_when_the_creator_is_killed() -> None:
    held = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert held.stdout is not None
    assert held.stdout.readline() == "up\n"
    (namespace,) = (name for name in our_namespaces() if f"-{held.pid}-" in name and name.endswith("node-1"))
    network = Path("/run/netns", namespace).stat().st_ino

    held.send_signal(signal.SIGKILL)
    held.communicate()

    ends = time.monotonic() + 60
    while left := living_in(network):
        assert time.monotonic() < ends, left
        time.sleep(0.1)
    sweep()
    assert not [path for path in Path("/tmp").glob("nodeagent-kubernetes-*") if of_process(path.name, held.pid)]
    for hierarchy in control_groups.hierarchies():
        assert not list(hierarchy.glob(f"nodeagent-kubernetes-{held.pid}-*"))


def of_process(name: str, pid: int) -> bool:
    found = FILES.fullmatch(name)
    return bool(found) and int(found["pid"]) == pid  # type: ignore[index]


def living_in(network: int) -> list[str]:
    """The processes of a network namespace."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "ns/net").stat().st_ino == network:
                found.append((entry / "comm").read_text())
        except OSError:
            continue
    return found
