"""The whole agent, killed: its table stays in force, and the next agent goes on where it was."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.net.namespace_process import Running
from nodeagent.model.addresses import Protocol
from nodeagent.proxy.dataplane.image.image import frontend_key
from nodeagent.proxy.dataplane.program import schema
from tests.harness.stopwatch import allowed
from tests.harness.warm_start import AGENT, WarmLauncher

pytestmark = pytest.mark.kernel

KEY = frontend_key("10.96.0.10", Protocol.TCP, 80)
MANIFEST = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.244.1.1]}, {addresses: [10.244.1.2]}]
ports: [{port: 8080}]
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "web.yaml").write_text(MANIFEST)
    run = [*AGENT, "run", "--manifests", str(tmp_path), "--node-name", "here"]
    return [*run, "--manage-sysctls", "false", "--table-ownership"]


@pytest.fixture
def running(
    kernel: Any, warm_launcher: WarmLauncher, command: list[str], request: pytest.FixtureRequest
) -> Iterator[Running]:
    """An agent with the ownership of the test's parameter, that has programmed the service."""
    with open(os.devnull, "wb") as nothing:
        start = ("", [*command, request.param], os.environ, nothing.fileno())
        agent = kernel.run(lambda: warm_launcher.start(*start))
    deadline = time.monotonic() + 60
    while b"web" not in kernel.command("nft", "list", "ruleset").stdout.encode():
        assert agent.poll() is None, "the agent ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield agent
    if agent.poll() is None:
        agent.kill()
    agent.wait()


@pytest.mark.parametrize("running", ["owned", "plain"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_its_table_stays_in_force_and_the_next_one_adopts_it(
    kernel: Any,
    warm_launcher: WarmLauncher,
    command: list[str],
    running: Running,
    number: signal.Signals,
    request: Any,
) -> None:
    before = kernel.contents()
    os.kill(running.pid, number)
    running.wait(60)
    assert kernel.contents().image == before.image

    ownership = request.node.callspec.params["running"]
    again = kernel.run(lambda: warm_launcher.run("", [*command, ownership, "--once"]))

    assert again.returncode == 0, again.stderr
    assert "IPv4:0" in again.stderr or "elements=0" in again.stderr
    assert kernel.contents().header.handle == before.header.handle
    assert kernel.contents().image == before.image
    assert KEY in before.image[schema.FRONTENDS]


@pytest.mark.parametrize("running", ["owned"], indirect=True)
def test_a_second_agent_ends_with_an_explanation(
    kernel: Any, warm_launcher: WarmLauncher, command: list[str], running: Running
) -> None:
    second = kernel.run(lambda: warm_launcher.run("", [*command, "owned", "--once"]))
    assert second.returncode == 3
    assert "stop the nodeagent that runs here first" in second.stderr
    assert running.poll() is None


@pytest.mark.parametrize("running", ["plain"], indirect=True)
def test_a_foreign_flush_is_repaired_within_a_second(kernel: Any, running: Running) -> None:
    before = kernel.image()
    kernel.nft("flush ruleset")
    flushed = time.monotonic()
    while kernel.command("nft", "list", "table", "ip", "nodeagent").returncode:
        assert time.monotonic() < flushed + 60
        time.sleep(0.01)

    assert time.monotonic() - flushed < allowed(1.5 * float(os.environ.get("PACE", "1")))
    assert kernel.image() == before
