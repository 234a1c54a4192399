"""The whole agent over manifests with something wrong in them: what it serves all the same, and how it tells."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.warm_start import AGENT, WarmLauncher

pytestmark = pytest.mark.kernel

WEB = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
"""
BALANCED = """
apiVersion: v1
kind: Service
metadata: {name: balanced, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.11
  externalTrafficPolicy: Local
  healthCheckNodePort: PORT
  ports: [{port: 80, nodePort: 30080}]
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: here}
status: {addresses: [{type: InternalIP, address: 192.0.2.2}, {type: InternalIP, address: "2001:db8::2"}]}
"""
PATIENCE = 60.0
Ended = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def options(kernel: Any, tmp_path: Path) -> list[str]:
    """Of an agent on a node with these addresses, so that nothing is wrong but what a test makes wrong."""
    kernel.command("ip", "link", "set", "lo", "up")
    kernel.command("ip", "address", "add", "192.0.2.2/32", "dev", "lo")
    kernel.command("ip", "address", "add", "2001:db8::2/128", "dev", "lo")
    (tmp_path / "node.yaml").write_text(NODE)
    (tmp_path / "web.yaml").write_text(WEB)
    source = ["--manifests", str(tmp_path), "--node-name", "here"]
    return [*source, "--cluster-cidr", "10.244.0.0/16"]


@pytest.fixture
def ended(kernel: Any, warm_launcher: WarmLauncher, options: list[str]) -> Ended:
    """Runs that agent to its end."""
    return lambda *more: kernel.run(lambda: warm_launcher.command("", ["run", *options, *more], timeout=PATIENCE))


@pytest.fixture
def status_lines(tmp_path: Path) -> Iterator[tuple[str, Callable[[Callable[[str], bool]], str]]]:
    """The address that systemd would give, and a function that waits for a status line."""
    path = str(tmp_path / ".notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(PATIENCE)

        def wait(wanted: Callable[[str], bool]) -> str:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                for line in notify.recv(4096).decode().splitlines():
                    if line.startswith("STATUS=") and wanted(line):
                        return line
            raise TimeoutError

        yield path, wait


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param(BALANCED.replace("PORT", "70000"), "Service default/balanced: InvalidPort", id="an object"),
        pytest.param("kind: Service\napiVersion: v1\nmetadata: []\n", "file bad.yaml:3", id="a file"),
    ],
)
def test_once_ends_with_1_when_something_is_not_in_effect(
    kernel: Any, ended: Ended, tmp_path: Path, manifest: str, expected: str
) -> None:
    (tmp_path / "bad.yaml").write_text(manifest)
    once = ended("--once")
    assert once.returncode == 1, once.stderr
    *_, last = once.stderr.splitlines()
    assert last.startswith(f"nodeagent: not everything is in effect: {expected}")
    assert "1 problem" in next(line for line in once.stderr.splitlines() if " ready: " in line)
    assert "10.96.0.10" in kernel.command("nft", "list", "ruleset").stdout, "the rest is in effect"
    assert ended("--once", "--allow-problems").returncode == 0


def test_once_ends_with_0_when_all_is_in_effect(ended: Ended) -> None:
    once = ended("--once")
    assert once.returncode == 0, once.stderr


def test_allowing_problems_means_nothing_to_a_daemon(ended: Ended) -> None:
    refused = ended("--allow-problems")
    assert refused.returncode == 2
    assert "--allow-problems needs --once" in refused.stderr


@pytest.mark.parametrize("port", ["-1", "70000", "99999999999999999999"])
def test_a_hostile_health_check_port_ends_nothing_and_is_counted_in_the_status(
    kernel: Any, warm_launcher: WarmLauncher, options: list[str], tmp_path: Path, status_lines: Any, port: str
) -> None:
    address, wait_for_status = status_lines
    with open(os.devnull, "wb") as nothing:
        start = ("", [*AGENT, "run", *options], {**os.environ, "NOTIFY_SOCKET": address}, nothing.fileno())
        agent = kernel.run(lambda: warm_launcher.start(*start))
    try:
        wait_for_status(lambda line: "1 service" in line and "problem" not in line)
        (tmp_path / "balanced.yaml").write_text(BALANCED.replace("PORT", port))
        wait_for_status(lambda line: line.endswith("; 1 problem"))
        (tmp_path / "balanced.yaml").write_text(BALANCED.replace("PORT", "31000"))
        wait_for_status(lambda line: "2 services" in line and "problem" not in line)
        (tmp_path / "web.yaml").write_text(WEB + "---\n[")
        line = wait_for_status(lambda line: line.endswith("; 1 problem"))
        assert "2 services" in line, "a file that cannot be read changes no object, so no pass tells of it"
        assert agent.poll() is None
    finally:
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(PATIENCE) == 0
