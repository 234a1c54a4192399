"""Whether the agent of a pod has started is asked at a socket that only processes of this pod look for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nodeagent.daemon.startup_probe import probed_socket, probes_succeed

ROOT = Path(__file__).parents[3]
COMPONENT = ROOT / "deploy" / "components" / "names" / "kustomization.yaml"


def probe(directory: Path) -> bool:
    """As kubelet runs the probe of the component `names`, in a pod whose /run/nodeagent is this directory."""
    operations = yaml.safe_load(yaml.safe_load(COMPONENT.read_text())["patches"][1]["patch"])
    (value,) = (one["value"] for one in operations if one["path"].endswith("/startupProbe"))
    _, *options, program = value["exec"]["command"]
    program = program.replace("/run/nodeagent", str(directory))
    return subprocess.run([sys.executable, *options, program], check=False, capture_output=True).returncode == 0


def test_the_probe_of_the_component_succeeds_while_the_agent_says_so(tmp_path: Path) -> None:
    assert not probe(tmp_path)
    with probes_succeed(tmp_path):
        assert probe(tmp_path)
        assert probe(tmp_path)
    assert not probe(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_pods_agent_does_not_answer(tmp_path: Path) -> None:
    with probes_succeed(tmp_path):
        probed_socket(tmp_path).rename(tmp_path / "started-1.sock")
        assert not probe(tmp_path)


def test_the_probe_file_of_a_killed_agent_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "started-1.sock"
    subprocess.run(
        [sys.executable, "-c", f"import socket; socket.socket(socket.AF_UNIX).bind({json.dumps(str(left))})"],
        check=True,
    )
    assert left.exists()
    with probes_succeed(tmp_path):
        assert not left.exists()


def test_a_directory_that_is_not_writable_is_reported_and_stops_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with probes_succeed(tmp_path / "file" / "below"):
        pass
    assert "kubelet asks whether this agent has started" in caplog.text
