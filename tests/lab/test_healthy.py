"""Every command's first line calls a fresh lab with default options healthy, and a fault is seen."""

import sys
from typing import Any

import pytest

NODEAGENT = (sys.executable, "-m", "nodeagent")


@pytest.mark.parametrize(
    "command",
    [("check",), ("explain",), ("explain", "kube-system/kube-dns"), ("explain", "echo"), ("problems",)],
    ids=" ".join,
)
def test_the_first_line_says_healthy(shared: Any, command: tuple[str, ...]) -> None:
    told = shared.do("exec", "node-1", "--", *NODEAGENT, *command)
    assert told.startswith("healthy"), told


def test_a_fault_is_seen_and_its_end(shared: Any) -> None:
    """The control."""
    shared.do("exec", "node-1", "--", "sysctl", "-qw", "net.ipv4.ip_forward=0")
    try:
        for command in (("check",), ("explain", "echo")):
            outcome = shared.run("exec", "node-1", "--", *NODEAGENT, *command)
            assert outcome.status == 1
            assert "net.ipv4.ip_forward is 0" in outcome.output.partition("\n")[0]
    finally:
        shared.do("exec", "node-1", "--", "sysctl", "-qw", "net.ipv4.ip_forward=1")
    assert shared.do("exec", "node-1", "--", *NODEAGENT, "explain", "echo").startswith("healthy")
