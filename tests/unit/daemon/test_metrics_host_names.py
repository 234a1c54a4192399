"""By which names an agent's metrics server may be called."""

import socket
from pathlib import Path

import pytest

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.options import NodeConfig, ReportingConfig
from nodeagent.daemon import part_options


def test_names_of_node_and_host_with_and_without_the_domains_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 192.0.2.53\nsearch example.com svc.example\n")
    monkeypatch.setattr(part_options, "RESOLV_CONF", tmp_path / "resolv.conf")
    monkeypatch.setattr(socket, "gethostname", lambda: "host-1")
    reporting = ReportingConfig(metrics_host_names=("metrics.example.org",))
    names = part_options.metrics_host_names(AgentConfig(node=NodeConfig(name="node-a"), reporting=reporting))
    assert set(names) == {
        *("node-a", "node-a.example.com", "node-a.svc.example"),
        *("host-1", "host-1.example.com", "host-1.svc.example"),
        "metrics.example.org",
    }


def test_a_machine_without_resolv_conf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(part_options, "RESOLV_CONF", tmp_path / "none")
    names = part_options.metrics_host_names(AgentConfig(node=NodeConfig(name="node-a")))
    assert set(names) == {"node-a", socket.gethostname()}
