"""SIGTERM and SIGINT at any moment of the agent's start: exit code 0, no word of it, and nothing half-made."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import create_namespaces, inside, namespace_name, remove_namespace

pytestmark = pytest.mark.kernel

LISTENING = "click"
"""An import that begins after the process has set what signals do; ``-X importtime`` says when it is done."""
MODULES = (LISTENING, "nodeagent.daemon.agent")
"""Early among the imports, and among the last of them."""
ORDINARY = re.compile(r"import time:|[\d:.]+ (info|warning) ")
MOMENTS = 16
SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE = 60.0


@pytest.fixture
def namespaces(network_namespaces: None) -> Iterator[list[str]]:
    """One for each agent that starts at the same time: tables have one owner."""
    names = [namespace_name(os.getpid(), "519a", start) for start in ("start", "beside")]
    create_namespaces(names)
    yield names
    for name in names:
        remove_namespace(name)


def start(namespace: str, directory: Path, until: str = LISTENING) -> subprocess.Popen[str]:
    """An agent that has just imported a module."""
    flags = (
        "--manifests",
        str(directory),
        "--node-name",
        "n1",
        "--healthz-bind-address",
        "",
        "--conntrack-max-per-core",
        "0",
    )
    argv = [sys.executable, "-X", "importtime", "-m", "nodeagent", "run", *flags]
    process = inside(namespace, lambda: subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, cwd=directory))
    wait_for(process, until)
    return process


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it ended with {process.wait()} before {words}")


def ends(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, list[str]]:
    """The exit code after a signal, and what was printed that is neither an import nor a log line."""
    process.send_signal(number)
    assert process.stderr is not None
    with process.stderr as errors:  # communicate() would begin behind what was read ahead, in the middle of a line
        lines = errors.read().splitlines()
    return process.wait(PATIENCE), [line for line in lines if not ORDINARY.match(line)]


def test_a_signal_at_any_moment_of_the_start_ends_the_agent_with_0(namespaces: list[str], tmp_path: Path) -> None:
    began = time.monotonic()
    whole = start(namespaces[0], tmp_path)
    wait_for(whole, " ready: ")
    seconds = time.monotonic() - began
    assert ends(whole, signal.SIGTERM) == (0, [])

    def every_other_moment(first: int) -> list[tuple[int, list[str]]]:
        outcomes = []
        for index in range(first, MOMENTS, len(namespaces)):
            process = start(namespaces[first], tmp_path)
            time.sleep(seconds * index / (MOMENTS - 2))  # the moments themselves: from the first to after the last
            outcomes.append(ends(process, SIGNALS[index // len(namespaces) % 2]))
        return outcomes

    with ThreadPoolExecutor(len(namespaces)) as pool:
        outcomes = [outcome for some in pool.map(every_other_moment, range(len(namespaces))) for outcome in some]
    assert outcomes == [(0, [])] * MOMENTS

    for name in namespaces:
        rules = inside(
            name, lambda: subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
        )
        assert set(rules.stdout.splitlines()) <= {"table ip nodeagent", "table ip6 nodeagent"}
    assert list(tmp_path.iterdir()) == []


def test_a_reload_at_any_moment_of_the_start_is_a_reload(namespaces: list[str], tmp_path: Path) -> None:
    """The configuration may have been read already, so that it is read again."""

    def hung_up(before: str) -> tuple[int, list[str]]:
        process = start(namespaces[0], tmp_path, before)
        process.send_signal(signal.SIGHUP)
        wait_for(process, "reload: the new configuration takes effect")
        return ends(process, signal.SIGTERM)

    assert [hung_up(module) for module in MODULES] == [(0, [])] * len(MODULES)


def test_a_command_that_people_wait_for_is_interrupted_as_ever() -> None:
    program = "import signal, sys; from nodeagent.cli.early_end import end_daemon_early; "
    program += "end_daemon_early(sys.argv[1:]); print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    for arguments, untouched in ((["show"], "True"), (["run"], "False"), ([], "True")):
        found = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == untouched
