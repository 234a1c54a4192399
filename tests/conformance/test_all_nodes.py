"""The cluster at a glance in a real cluster that our DaemonSet serves: asked by `exec`, with a user's rights, also as kubectl's plugin."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent import __version__
from tests.conformance.serving_cluster import serving_cluster
from tests.harness.kubernetes.cluster import Cluster
from tests.harness.kubernetes.release import Release

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "dist" / f"nodeagent-{__version__}-amd64.tar"
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif("KUBERNETES" not in os.environ, reason="KUBERNETES names no release of Kubernetes"),
    pytest.mark.skipif(not IMAGE.exists(), reason="make image has not made the image"),
]
NODEAGENT = [sys.executable, "-m", "nodeagent"]
PLUGIN = f"#!{sys.executable}\nfrom nodeagent.cli.kubectl_plugin import main\nmain()\n"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: caller, labels: {app: caller}}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: IMAGE, args: [pause]}]
"""
VIEWER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules: [{apiGroups: [""], resources: [nodes, pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: viewer}]
"""
SOMEWHERE_ELSE = {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with serving_cluster(IMAGE, tmp_path_factory.mktemp("overlay")) as cluster:
        yield cluster


def run(cluster: Cluster, *words: str, kubeconfig: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig or cluster.kubeconfig), "PYTHONPATH": str(ROOT)}
    command = cluster.command(*NODEAGENT, *words)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


def states(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    return {one["node"]: one["state"] for one in json.loads(done.stdout)["nodes"]}


@pytest.mark.parametrize("words", [("explain",), ("explain", "kubernetes"), ("check",), ("problems",)], ids=" ".join)
def test_a_healthy_cluster_is_reported_as_healthy(cluster: Cluster, words: tuple[str, ...]) -> None:
    done = run(cluster, *words, "--all-nodes")
    assert (done.returncode, done.stdout.splitlines()[:2]) == (0, ["healthy: 2 nodes", "from: 2 of 2 nodes"]), done


def test_a_fault_of_one_node_is_named(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    node.run("sysctl", "-qw", "net.ipv4.ip_forward=0")
    try:
        done = run(cluster, "check", "--all-nodes", "-o", "json")
    finally:
        node.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    assert (done.returncode, states(done)) == (1, {"node-2": "not healthy", "node-1": "healthy"})
    assert "net.ipv4.ip_forward is 0" in done.stdout


def test_kubectl_has_a_plugin(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "kubectl-nodeagent"
    program.write_text(PLUGIN)
    program.chmod(0o755)
    kubectl = str(Release.of_environment().find("kubectl"))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for words in (["explain", "kubernetes", "-n", "default"], ["check", "--node", "node-1"]):
        command = cluster.command(kubectl, "nodeagent", *words, "--kubeconfig", str(cluster.kubeconfig))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
        assert (done.returncode, done.stdout.partition(":")[0]) == (0, "healthy"), done


def test_a_trace_begins_where_the_pod_is(cluster: Cluster) -> None:
    image = f"docker.io/library/nodeagent:{__version__}"
    waits = POD.replace("args: [pause]", 'command: [python3, -c, "import signal; signal.pause()"]').replace(
        "IMAGE", image
    )
    cluster.kubectl("apply", "-f", "-", stdin=waits)
    cluster.kubectl("wait", "--for=condition=Ready", "pod", "caller")
    done = run(cluster, "trace", "pod/caller", "svc/kubernetes", "--all-nodes")
    assert (done.returncode, done.stdout[:8]) == (0, "arrives:"), done


def test_a_bundle_of_each_node_is_replayed(cluster: Cluster, tmp_path: Path) -> None:
    archive = tmp_path / "report.tar"
    done = run(cluster, "bundle", str(archive), "--all-nodes")
    assert (done.returncode, done.stdout) == (
        0,
        f"{archive}: bundles of 2 of 2 nodes; nodeagent replay --node NAME {archive}\n",
    ), done
    for name in ("node-1", "node-2"):
        with tarfile.open(archive) as opened:
            log = opened.extractfile(f"nodeagent-bundles/{name}.log.txt")
            assert log is not None
            assert b" ready: " in log.read()
        replayed = run(cluster, "replay", "--node", name, str(archive), "nodeagent", "explain", "kubernetes")
        assert f"as node {name}," in replayed.stdout, replayed


def test_who_may_not_exec_learns_it(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=VIEWER)
    done = run(
        cluster, "check", "--all-nodes", "-o", "json", kubeconfig=cluster.certificates.client("viewer", "viewer")
    )
    assert (done.returncode, set(states(done).values())) == (1, {"unknown"})
    assert "you may not run commands in pod nodeagent-" in done.stdout


def test_a_node_without_an_agent_is_not_healthy(cluster: Cluster) -> None:
    patch = json.dumps({"spec": {"template": {"spec": SOMEWHERE_ELSE}}})
    cluster.kubectl("-n", "kube-system", "patch", "daemonset", "nodeagent", "--patch", patch)
    cluster.kubectl("-n", "kube-system", "rollout", "status", "daemonset", "nodeagent", "--timeout=110s")
    cluster.wait_until(
        lambda: len(cluster.get("pods", "-n", "kube-system", "-l", "app.kubernetes.io/name=nodeagent")["items"]) == 1,
        "one agent",
    )
    done = run(cluster, "explain", "--all-nodes", "-o", "json")
    assert (done.returncode, states(done)) == (1, {"node-2": "unknown", "node-1": "healthy"})
    assert "no pod of an agent in kube-system is on it" in json.loads(done.stdout)["verdict"]
