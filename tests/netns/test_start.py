"""The start of the agent beside API servers that forbid, that are not there, and on machines without IPv6."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import create_namespaces, inside, namespace_name, remove_namespace
from tests.harness.stopwatch import Stopwatch, allowed
from tests.harness.warm_start import AGENT
from tests.harness.worlds.process import AgentProcess

FORBIDDING = Path(__file__).with_name("forbidding_server.py")
SERVER = "http://127.0.0.1:8001"
NOBODY = "http://127.0.0.1:9"
SOON_SECONDS = 20.0
"""Well below the 30 seconds for which a Node that may still come is waited for. That others have the processor does not count."""
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
NO_IPV6 = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")


@pytest.fixture
def namespace(network_namespaces: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty network namespace in which packets are not forwarded and loopback is up."""
    name = namespace_name(os.getpid(), "a10e", "start")
    create_namespaces([name])
    run(name, "ip", "link", "set", "lo", "up")
    inside(name, lambda: FORWARDING.write_text("0"))
    yield name
    remove_namespace(name)


def run(namespace: str, *argv: str) -> AgentProcess:
    """The command, at its end."""
    process = AgentProcess(namespace, argv)
    deadline = time.monotonic() + 60
    while process.running and time.monotonic() < deadline:
        time.sleep(0.02)
    process.last_words()
    return process


def forwards(namespace: str) -> bool:
    return inside(namespace, lambda: FORWARDING.read_text().strip()) == "1"


def once(namespace: str, *flags: str) -> tuple[int, AgentProcess]:
    process = run(namespace, *AGENT, "run", "--once", "--node-name", "n1", "--conntrack-max-per-core", "0", *flags)
    return process.stop(), process


def test_a_single_run_without_a_server_ends_in_time_and_leaves_the_machine_as_it_was(namespace: str) -> None:
    began = time.monotonic()
    code, process = once(namespace, "--master", NOBODY, "--timeout", "2s")
    assert code == 1
    assert time.monotonic() - began < allowed(2.0)
    last = process.last_words()
    assert last.startswith(
        f"nodeagent: not done within 2 seconds: waiting for Service, EndpointSlice, Node, ServiceCIDR from {NOBODY}; "
    )
    assert "Connection refused" in last
    assert not forwards(namespace)
    assert not [line for line in process.lines if "sysctl" in line]
    assert "nodeagent" not in " ".join(run(namespace, "nft", "list", "ruleset").lines)


def test_a_timeout_is_for_single_runs(namespace: str) -> None:
    process = run(namespace, *AGENT, "run", "--timeout", "2s", "--master", NOBODY)
    assert process.stop() == 2
    assert "--timeout is for --once" in process.last_words()
    assert run(namespace, *AGENT, "run", "--once", "--timeout", "2", "--master", NOBODY).stop() == 2


def test_only_ipv6_where_it_is_off_is_one_clear_error(namespace: str, tmp_path: Path) -> None:
    inside(namespace, lambda: NO_IPV6.write_text("1"))
    code, process = once(namespace, "--manifests", str(tmp_path), "--families", "IPv6")
    assert code == 3
    assert process.last_words().startswith("nodeagent: node.families: IPv6 is off on this machine")
    assert not [line for line in process.lines if "Traceback" in line or "TypeError" in line]


def test_only_ipv4_is_programmed_where_ipv6_is_off(namespace: str, tmp_path: Path) -> None:
    inside(namespace, lambda: NO_IPV6.write_text("1"))
    code, process = once(namespace, "--manifests", str(tmp_path), "--families", "IPv4,IPv6")
    assert (code, [line for line in process.lines if "families=IPv4 " in line] != []) == (0, True)


@pytest.fixture
def forbidding(namespace: str) -> Iterator[AgentProcess]:
    """The server that forbids the Node and ServiceCIDRs."""
    server = AgentProcess(namespace, [sys.executable, str(FORBIDDING)])
    server.wait_for_line("listens")
    yield server
    server.kill()


def test_a_server_that_forbids_what_is_not_needed_delays_neither_start_nor_reload(
    namespace: str, forbidding: AgentProcess, tmp_path: Path
) -> None:
    """The watchdog is fed all the time, for the predecessor works until the successor knows everything."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        flags = ("--node-name", "n1", "--master", SERVER, "--conntrack-max-per-core", "0")
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "4000000"}
        agent = AgentProcess(namespace, [*AGENT, "run", *flags], environment=environment)
        try:
            agent.wait_for_line("starting node=")
            watch = Stopwatch([agent.pid, forbidding.pid])
            agent.wait_for_line(" ready: ")
            assert watch.seconds < SOON_SECONDS
            assert forwards(namespace)
            forbidden = "API resource servicecidrs: Forbidden: not followed: 403 Forbidden: this server forbids it"
            agent.wait_for_line(forbidden)
            printed = len(agent.lines)
            agent.signal(signal.SIGHUP)
            watch = Stopwatch([agent.pid, forbidding.pid])
            agent.wait_for_line("the new configuration takes effect", after=printed)
            agent.wait_for_line(" ready: ", after=printed)
            assert watch.seconds < SOON_SECONDS
            assert agent.stop() == 0
        finally:
            agent.kill()
        listener.settimeout(0.2)
        shown = []
        try:
            while True:
                shown.append(listener.recv(4096).decode())
        except TimeoutError:
            pass
        assert sum("READY=1" in message for message in shown) >= 2
        assert "WATCHDOG=1" in shown


def test_a_proxy_of_the_machine_is_not_for_the_programs_of_a_lab(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:3128")
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:3128")
    assert not [line for line in run(namespace, "env").lines if "192.0.2.1" in line]
