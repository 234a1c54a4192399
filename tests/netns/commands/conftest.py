"""A node of one's own for commands: a network namespace, in which `nodeagent` and shell commands run."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.lab.net.namespaces import create_namespaces, namespace_name, remove_namespace

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
NODEAGENT = [sys.executable, "-c", "from nodeagent.cli.main import main; main(prog_name='nodeagent')"]
COMMAND_SECONDS = 120.0

Done = subprocess.CompletedProcess[str]


class Node:
    """A network namespace; loopback is up."""

    def __init__(self, name: str) -> None:
        self.name = name

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
        """The command, whatever came of it."""
        return self.run(*NODEAGENT, *arguments, environment=environment)

    def program_examples(self, *options: str) -> None:
        """Let an agent program docs/examples, and end."""
        cidrs = "10.244.0.0/16,fd00:244::/32"
        done = self.nodeagent(
            "run", "--once", "--manifests", str(EXAMPLES), "--node-name=node-a", f"--cluster-cidr={cidrs}", *options
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def one_node() -> Iterator[Node]:
    """A new node, gone at the end."""
    name = namespace_name(os.getpid(), secrets.token_hex(3), "node")
    create_namespaces([name])
    try:
        node = Node(name)
        node.shell("ip link set lo up")
        yield node
    finally:
        remove_namespace(name)


@pytest.fixture
def node(network_namespaces: None) -> Iterator[Node]:
    with one_node() as made:
        yield made
