"""A node of one's own for commands: a network namespace, in which `nodeagent` and shell commands run."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import create_namespaces, namespace_name, remove_namespace
from tests.harness.warm_start import WarmLauncher

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
NODEAGENT = [sys.executable, "-c", "from nodeagent.cli.main import main; main(prog_name='nodeagent')"]
COMMAND_SECONDS = 120.0

Done = subprocess.CompletedProcess[str]


class Node:
    """A network namespace; loopback is up."""

    def __init__(self, name: str, launcher: WarmLauncher) -> None:
        self.name = name
        self._launcher = launcher

    def run(self, *argv: str, environment: Mapping[str, str] | None = None) -> Done:
        """A program that ran inside."""
        return subprocess.run(
            ["ip", "netns", "exec", self.name, *argv],
            env={**os.environ, **(environment or {})},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )

    def shell(self, script: str) -> str:
        """What a shell script printed, which must succeed."""
        done = self.run("bash", "-ec", script)
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    def nodeagent(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Done:
        """The command, whatever came of it; forked."""
        return self._launcher.command(
            self.name,
            arguments,
            environment={**os.environ, **(environment or {})},
            directory=str(ROOT),
            timeout=COMMAND_SECONDS,
        )

    def program_examples(self, *options: str) -> None:
        """Let an agent program docs/examples, and end."""
        cidrs = "10.244.0.0/16,fd00:244::/32"
        done = self.nodeagent(
            "run", "--once", "--manifests", str(EXAMPLES), "--node-name=node-a", f"--cluster-cidr={cidrs}", *options
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def one_node(launcher: WarmLauncher) -> Iterator[Node]:
    """A new node, gone at the end."""
    name = namespace_name(os.getpid(), secrets.token_hex(3), "node")
    create_namespaces([name])
    try:
        node = Node(name, launcher)
        node.shell("ip link set lo up")
        yield node
    finally:
        remove_namespace(name)


@pytest.fixture
def node(network_namespaces: None, warm_launcher: WarmLauncher) -> Iterator[Node]:
    with one_node(warm_launcher) as made:
        yield made
