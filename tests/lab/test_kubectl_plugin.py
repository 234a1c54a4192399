"""`kubectl nodeagent` with a real kubectl, at the API server of a lab; and what kubectl completes of it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KUBECTL = ROOT / ".tools" / "kubectl-1.32" / "kubectl"
PROGRAM = f"#!{sys.executable}\nfrom nodeagent.cli.kubectl_plugin import {{0}}\n{{0}}()\n"
pytestmark = pytest.mark.skipif(not KUBECTL.exists(), reason=f"no {KUBECTL}: see tests/tools/fetch_kubectl.sh")


class Kubectl:
    """With the plugin on its path, and the lab's kubeconfig only where a flag names it."""

    def __init__(self, shared: Any, directory: Path) -> None:
        self.kubeconfig = shared.do("kubeconfig").strip()
        self._environment = {
            **{name: value for name, value in shared.environment.items() if name != "KUBECONFIG"},
            "PATH": f"{directory}:{os.environ['PATH']}",
            "HOME": str(directory),
        }
        for name, function in (("kubectl-nodeagent", "main"), ("kubectl_complete-nodeagent", "complete")):
            (directory / name).write_text(PROGRAM.format(function))
            (directory / name).chmod(0o755)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [KUBECTL, *words], env=self._environment, capture_output=True, text=True, check=False, timeout=120
        )

    def plugin(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.run("nodeagent", *words, "--kubeconfig", self.kubeconfig)

    def completes(self, *words: str) -> list[str]:
        """Without what is said of each, and without kubectl's own lines."""
        *before, last = words
        done = self.run("__complete", "nodeagent", before[0], "--kubeconfig", self.kubeconfig, *before[1:], last)
        return [line.partition("\t")[0] for line in done.stdout.splitlines()]


@pytest.fixture
def kubectl(shared: Any, tmp_path: Path) -> Kubectl:
    return Kubectl(shared, tmp_path)


def test_the_commands_ask_all_nodes(kubectl: Kubectl) -> None:
    for words in (("explain", "echo", "-n", "default"), ("problems", "--context", "lab")):
        done = kubectl.plugin(*words)
        assert (done.returncode, done.stdout.splitlines()[:2]) == (0, ["healthy: 2 nodes", "from: 2 of 2 nodes"]), done
    assert kubectl.plugin("check", "--node", "node-2").stdout.startswith("healthy: 1 node\n")
    assert kubectl.plugin("trace", "pod/echo-1-1", "svc/echo:tcp").stdout.startswith("arrives: ")


def test_an_impossible_request_is_one_line_and_exit_code_2(kubectl: Kubectl) -> None:
    nowhere = kubectl.run("nodeagent", "check")
    assert (nowhere.returncode, nowhere.stderr.count("\n")) == (2, 1)
    assert "/.kube/config: No such file or directory" in nowhere.stderr
    assert kubectl.plugin("problems", "--context", "nope").returncode == 2
    done = kubectl.plugin("cleanup")
    assert (done.returncode, "cleanup works only on the node itself" in done.stderr) == (2, True)


def test_a_missing_service_is_named(kubectl: Kubectl) -> None:
    """The control: it is not healthy for everything."""
    done = kubectl.plugin("explain", "nobody")
    assert (done.returncode, done.stdout.startswith("broken: default/nobody: ")) == (1, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("explain", "ec"), ["echo", ":4"]),
        (("explain", "svc/ec"), ["svc/echo", ":4"]),
        (("explain", "kube-system/"), ["kube-system/kube-dns", ":4"]),
        (("explain", "-n", "kube-system", "kube-d"), ["kube-dns", ":4"]),
        (("explain", "-n", "kube-p"), ["kube-public", ":4"]),
        (("explain", "--node", "n"), ["node-1", "node-2", ":4"]),
        (("explain", "--context", ""), ["lab", ":4"]),
        (("explain", "-o", "j"), ["json", ":4"]),
        (("trace", "pod/echo-1"), ["pod/echo-1-1", "pod/echo-1-2", ":4"]),
        (("trace", "pod/echo-1-1", "svc/e"), ["svc/echo", ":4"]),
        (("bundle", ""), [":0"]),
        (("explain", "nobody"), [":4"]),
    ],
    ids=str,
)
def test_completion(kubectl: Kubectl, words: tuple[str, ...], expected: list[str]) -> None:
    assert kubectl.completes(*words) == expected


def test_the_commands_are_completed(kubectl: Kubectl) -> None:
    done = kubectl.run("__complete", "nodeagent", "")
    names = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert names == ["explain", "check", "problems", "trace", "bundle", "version", "help", ":4"]
