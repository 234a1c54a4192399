"""The units are what systemd understands, they are locked down, and the files beside them fit."""

import re
import subprocess
from pathlib import Path

import pytest

from nodeagent.config.load import load_config

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "systemd"
UNITS = ("nodeagent.service", "nodeagent-apiserver.service")
EXPOSURE = {"nodeagent.service": 16, "nodeagent-apiserver.service": 15}
"""Tenths, of 100; systemd calls less than 20 "OK" at worst, and an ordinary service has about 96."""


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unit with a program that exists on this machine in place of the one that only a package installs."""
    path = tmp_path / str(request.param)
    path.write_text((SYSTEMD / path.name).read_text().replace("=/usr/bin/nodeagent ", "=/bin/true "))
    return path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def settings(unit: Path) -> list[str]:
    return [line for line in unit.read_text().splitlines() if line and not line.startswith(("#", "["))]


def test_systemd_understands_every_line(unit: Path) -> None:
    """Without --recursive-errors= an unknown key or a bad value is a warning only, and the exit status 0."""
    result = analyze("verify", "--man=no", "--recursive-errors=no", str(unit))
    assert (result.returncode, result.stderr) == (0, "")


def test_a_fault_would_be_noticed(unit: Path) -> None:
    unit.write_text(unit.read_text().replace("Restart=always", "Restart=sometimes"))
    assert analyze("verify", "--man=no", "--recursive-errors=no", str(unit)).returncode == 1


def test_the_service_is_exposed_to_little(unit: Path) -> None:
    result = analyze("security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE[unit.name]}", str(unit))
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("Type=notify", id="READY after the first complete programming"),
        pytest.param("User=nodeagent", id="a user of its own"),
        pytest.param("AmbientCapabilities=CAP_NET_ADMIN CAP_NET_BIND_SERVICE", id="two capabilities"),
        pytest.param("CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_BIND_SERVICE", id="and no way to another"),
        pytest.param("KillMode=process", id="names outlive it"),
        pytest.param("RuntimeDirectoryPreserve=yes", id="and are found again"),
        pytest.param("OOMPolicy=continue", id="the end of the process that answers them is not its own"),
        pytest.param("NoNewPrivileges=yes", id="not by set-user-ID programs either"),
        pytest.param("ProtectSystem=strict", id="nothing writable outside its directories"),
        pytest.param("RestrictAddressFamilies=AF_NETLINK AF_INET AF_INET6 AF_UNIX", id="address families"),
        pytest.param("Restart=always", id="it comes back"),
        pytest.param("StartLimitIntervalSec=0", id="however often"),
        pytest.param("ExecReload=/bin/kill -HUP $MAINPID", id="reload is SIGHUP"),
    ],
)
def test_the_agent_runs_with(setting: str) -> None:
    assert setting in settings(SYSTEMD / "nodeagent.service")


def test_the_agent_waits_for_the_network_and_hangs_on_no_firewall() -> None:
    lines = settings(SYSTEMD / "nodeagent.service")
    assert any(line.startswith("After=network-online.target") for line in lines)
    assert "Wants=network-online.target" in lines
    ties = [line for line in lines if re.match(r"(PartOf|BindsTo|Requires|Requisite|Before|Conflicts)=", line)]
    assert not ties
    assert not re.search(r"nftables|firewalld|iptables|ufw", "\n".join(lines))


def test_users_of_the_units_are_made() -> None:
    made = re.findall(r"^u (\S+)", (SYSTEMD / "nodeagent.sysusers").read_text(), re.MULTILINE)
    used = [line.removeprefix("User=") for unit in UNITS for line in settings(SYSTEMD / unit) if "User=" in line[:5]]
    assert made == used


def test_the_example_configuration_can_be_used() -> None:
    loaded = load_config(file=SYSTEMD / "nodeagent.yaml", environment={}, flags={}, hostname="node-a")
    assert not loaded.warnings
    assert str(loaded.config.source.manifests) == "/etc/nodeagent/services"
    assert "/etc/nodeagent/services" in (SYSTEMD / "nodeagent.tmpfiles").read_text()
