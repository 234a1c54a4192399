"""The cluster at a glance, in a lab: every node's agent is asked, and which could not be asked is said."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

NODEAGENT = (sys.executable, "-m", "nodeagent")

FORWARD_NOTHING = "table inet shut { chain f { type filter hook forward priority 0; policy drop; }; }"


def states(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    return {one["node"]: one["state"] for one in json.loads(done.stdout)["nodes"]}


def test_all_are_well(shared: Any) -> None:
    for command in (("explain",), ("explain", "echo"), ("check",), ("problems",)):
        done = shared.outside(*command, "--all-nodes")
        assert (done.returncode, done.stdout.splitlines()[:2]) == (0, ["healthy: 2 nodes", "from: 2 of 2 nodes"]), done


def test_one_node_has_a_fault(shared: Any, eventually: Callable[..., None]) -> None:
    shared.do("exec", "node-2", "--", "nft", FORWARD_NOTHING)
    try:
        for command in (("explain",), ("check",)):
            done = shared.outside(*command, "--all-nodes")
            first, _, _, worst, best = done.stdout.splitlines()
            assert done.returncode == 1
            assert " on node-2, because " in first
            assert "inet shut, chain f" in done.stdout
            assert (worst.split()[0], best.split()[:2]) == ("node-2", ["node-1", "healthy"])
        assert shared.outside("explain", "--all-nodes", "-o", "name").stdout == "node-2\n"
        assert shared.outside("explain", "--node", "node-1").returncode == 0
    finally:
        shared.do("exec", "node-2", "--", "nft", "delete table inet shut")
    eventually(lambda: shared.outside("problems", "--all-nodes").returncode == 0)


def test_a_frozen_agent_is_not_healthy(shared: Any) -> None:
    said = shared.do("exec", "node-1", "--", *NODEAGENT, "explain")
    process = re.search(r"\(process (\d+),", said)
    assert process is not None, said
    pid = int(process[1])
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = shared.outside("problems", "--all-nodes", "-o", "json")
        assert time.monotonic() - began < 60
        assert (done.returncode, states(done)) == (1, {"node-1": "unknown", "node-2": "healthy"})
        assert json.loads(done.stdout)["verdict"].startswith("unknown: node-1 of 2 nodes could not be asked, because")
        assert "hangs" in done.stdout
    finally:
        os.kill(pid, signal.SIGCONT)


def test_options_of_a_single_node_are_refused(shared: Any) -> None:
    done = shared.outside("explain", "--all-nodes", "--manifests", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nodeagent: --manifests concerns only this node")
