"""The service under systemd: what it says, what it survives, and what it cannot do. Traffic is never interrupted."""

import json
import re
from pathlib import Path

import pytest

from tests.harness.cluster import NODE, cluster_ips
from tests.harness.uninterrupted import SHOP, uninterrupted

from .conftest import AGENT, CONFIG, Node

SERVED = "1 service, 6 endpoints on node-a (IPv4, IPv6)"
NEW = cluster_ips(3)
CAP_NET_BIND_SERVICE, CAP_NET_ADMIN = 1 << 10, 1 << 12
PROBE = Path(__file__).with_name("sandbox_probe.py")

ALLOWED = {
    "write to the state directory",
    "write to the runtime directory",
    "write a network sysctl",
    "open a netlink socket",
    "open an IPv6 socket",
    "program nftables",
    "bind a low port",
}


def status_of_process(node: Node) -> dict[str, str]:
    """/proc/PID/status of the agent."""
    text = node.machine.run("cat", f"/proc/{node.machine.show(AGENT, 'MainPID')}/status").stdout
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def follows(node: Node) -> None:
    """The agent programs what changes: a service comes, answers, and goes."""
    caller = node.cluster.world["caller"]
    new = node.cluster.expose("new", *NEW, pods=["web-1"])
    node.machine.wait_until(lambda: not caller.ask(NEW[0], 80, timeout=0.2).failures, "the new service")
    node.cluster.withdraw(new)
    node.machine.wait_until(lambda: bool(caller.ask(NEW[0], 80, timeout=0.2).failures), "the end of the new service")


def test_the_unit_is_ready_when_everything_is_programmed(serving: Node) -> None:
    """`systemctl start` came back, so a connection must work at once."""
    assert not serving.cluster.world["caller"].ask(SHOP[0], 80, count=10).failures
    assert serving.machine.show(AGENT, "ActiveState") == "active"
    assert serving.machine.show(AGENT, "NotifyAccess") == "main"
    assert serving.status_text() == SERVED
    assert f'Status: "{SERVED}"' in serving.machine.systemctl("status", AGENT)


def test_the_status_follows_what_is_served(serving: Node) -> None:
    new = serving.cluster.expose("new", *NEW, pods=["web-1"])
    more = SERVED.replace("1 service, 6", "2 services, 8")
    serving.machine.wait_until(lambda: serving.status_text() == more, "the second service in the status")
    serving.cluster.withdraw(new)
    serving.machine.wait_until(lambda: serving.status_text() == SERVED, "one service in the status")


def test_the_journal_has_its_lines_with_their_priority(serving: Node) -> None:
    text = serving.machine.run("journalctl", "--output=json", f"--unit={AGENT}").stdout
    entries = [json.loads(line) for line in text.splitlines()]
    lines_before = {entry["MESSAGE"]: entry["PRIORITY"] for entry in entries if entry.get("_COMM") == "nodeagent"}
    assert lines_before[f"daemon.agent: ready: {SERVED}"] == "6"
    assert any(message.startswith("daemon.agent: starting node=node-a") for message in lines_before)
    assert set(lines_before.values()) <= {"4", "6"}


def test_the_service_runs_unprivileged_with_two_capabilities(serving: Node) -> None:
    status = status_of_process(serving)
    assert "0" not in status["Uid"].split()
    for kind in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == CAP_NET_ADMIN | CAP_NET_BIND_SERVICE, kind
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_the_service_sets_the_sysctls_of_the_network(serving: Node) -> None:
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        serving.cluster.world.write_sysctls(NODE, {f"net/{path}": "0"})
    serving.machine.systemctl("restart", AGENT)
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        assert serving.machine.run("cat", f"/proc/sys/net/{path}").stdout == "1\n"


def test_the_sandbox_lets_it_do_its_work_and_nothing_else(serving: Node) -> None:
    unit = (serving.machine.root / "usr/lib/systemd/system" / AGENT).read_text()
    for setting, instead in (
        ("Type", "Type=oneshot"),
        ("ExecStart", "ExecStart=/usr/bin/python3 /probe.py"),
        ("Restart", "Restart=no"),
        ("WatchdogSec", "WatchdogSec=0"),
        ("RuntimeDirectory", "RuntimeDirectory=probe"),
    ):
        unit, count = re.subn(rf"^{setting}=.*$", instead, unit, flags=re.MULTILINE)
        assert count == 1
    serving.machine.write("/probe.py", PROBE.read_text())
    serving.machine.write("/run/systemd/system/probe.service", unit)
    serving.machine.systemctl("daemon-reload")
    serving.machine.run("systemctl", "start", "probe.service", check=False)
    found = json.loads(serving.machine.wait_for_line("probe.service", r"^\{"))
    assert {name for name, outcome in found.items() if outcome == "done"} == ALLOWED, found


def test_a_frozen_agent_is_replaced_by_the_watchdog(serving: Node) -> None:
    """It says where it was stuck, when it can still speak."""
    serving.machine.write(f"/run/systemd/system/{AGENT}.d/quick.conf", "[Service]\nWatchdogSec=2s\n")
    serving.machine.systemctl("daemon-reload")
    serving.machine.systemctl("restart", AGENT)
    before = int(serving.machine.show(AGENT, "NRestarts"))
    pid = serving.machine.show(AGENT, "MainPID")
    lines_before = len(serving.machine.journal(AGENT))
    with uninterrupted(serving.cluster) as traffic:
        serving.machine.run("kill", "-STOP", pid)
        serving.machine.wait_for_line(AGENT, "Watchdog timeout", after=lines_before)
        traffic.flow()
        serving.machine.wait_for_line(AGENT, "agent: ready: ", after=lines_before)
        assert serving.machine.show(AGENT, "MainPID") != pid
        assert serving.machine.show(AGENT, "ActiveState") == "active"
        assert int(serving.machine.show(AGENT, "NRestarts")) == before + 1
        serving.machine.wait_for_line(AGENT, "Fatal Python error: Aborted", after=lines_before)
        assert "elements=0 " in serving.machine.wait_for_line(AGENT, "sync done .*full=yes", after=lines_before)
        follows(serving)


def test_an_agent_that_works_is_left_alone_by_the_watchdog(serving: Node) -> None:
    """With its time set to 2 s, by the test before: the agent outlives it several times with nothing to do."""
    pid = serving.machine.show(AGENT, "MainPID")
    fed = int(serving.machine.show(AGENT, "WatchdogTimestampMonotonic"))
    serving.machine.wait_until(
        lambda: int(serving.machine.show(AGENT, "WatchdogTimestampMonotonic")) > fed + 5_000_000, "five seconds of food"
    )
    assert serving.machine.show(AGENT, "MainPID") == pid


@pytest.mark.parametrize("signal", ["KILL", "ABRT"])
def test_a_killed_agent_comes_back(serving: Node, signal: str) -> None:
    lines_before = len(serving.machine.journal(AGENT))
    with uninterrupted(serving.cluster):
        serving.machine.systemctl("kill", f"--signal={signal}", AGENT)
        assert "elements=0 " in serving.machine.wait_for_line(AGENT, "sync done .*full=yes", after=lines_before)
        follows(serving)


def test_a_reload_takes_effect(serving: Node) -> None:
    caller = serving.cluster.world["caller"]
    pid = serving.machine.show(AGENT, "MainPID")
    with uninterrupted(serving.cluster):
        for masquerade in ("true", "false"):
            lines_before = len(serving.machine.journal(AGENT))
            serving.configure(masqueradeAll=masquerade)
            serving.machine.systemctl("reload", AGENT)
            serving.machine.wait_for_line(AGENT, "agent: ready: ", after=lines_before)
            seen_as_itself = caller.ask(SHOP[0], 80).peers <= set(caller.addresses)
            assert seen_as_itself is (masquerade == "false")
    serving.machine.wait_until(lambda: serving.machine.show(AGENT, "ActiveState") == "active", "the end of the reload")
    assert serving.machine.show(AGENT, "MainPID") == pid


def test_an_unusable_configuration_is_reported_and_changes_nothing(serving: Node) -> None:
    lines_before = len(serving.machine.journal(AGENT))
    good = (serving.machine.root / CONFIG.lstrip("/")).read_text()
    with uninterrupted(serving.cluster):
        serving.machine.write(CONFIG, good + "trafic: {}\n")
        serving.machine.systemctl("reload", AGENT)
        line = serving.machine.wait_for_line(
            AGENT, "reload failed, the configuration stays as it was", after=lines_before
        )
        assert f"{CONFIG}:" in line
        serving.machine.wait_until(lambda: serving.machine.show(AGENT, "ActiveState") == "active", "the old one")
        assert serving.status_text().startswith(f"{SERVED}; reload failed")
        follows(serving)
        serving.machine.write(CONFIG, good)
        serving.machine.systemctl("reload", AGENT)
        serving.machine.wait_until(lambda: serving.status_text() == SERVED, "the status after a good reload")


def test_a_restart_writes_nothing(serving: Node) -> None:
    lines_before = len(serving.machine.journal(AGENT))
    with uninterrupted(serving.cluster):
        serving.machine.systemctl("restart", AGENT)
        assert "elements=0 " in serving.machine.wait_for_line(AGENT, "sync done .*full=yes", after=lines_before)


def test_stopping_leaves_the_rules_and_cleanup_takes_them(serving: Node) -> None:
    """Last in this file: the agent does not run any more afterwards."""
    caller = serving.cluster.world["caller"]
    with uninterrupted(serving.cluster):
        serving.machine.systemctl("stop", AGENT)
    assert serving.machine.show(AGENT, "Result") == "success"
    assert "table ip nodeagent" in serving.machine.run("nft", "list", "tables").stdout
    removed = serving.machine.run("nodeagent", "cleanup").stdout
    assert {"table IPv4", "table IPv6", "interface nodeagent0"} <= set(
        removed.removeprefix("removed ").strip().split(", ")
    )
    assert "nodeagent" not in serving.machine.run("nft", "list", "ruleset").stdout
    assert "nodeagent0" not in serving.machine.run("ip", "link").stdout
    assert caller.ask(SHOP[0], 80, timeout=0.2).failures.total() == 1
