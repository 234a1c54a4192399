"""Forks start, end and are ended as other processes are."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nodeagent.lab.net.fork_server import Fork, ForkServer
from nodeagent.lab.net.network_namespaces import LabError, is_alive
from tests.harness.worlds.forks import SeparateForkServer

SECONDS = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = SeparateForkServer("signal")
    yield server
    server.close()


@pytest.mark.parametrize(
    ("function", "arguments", "status"),
    [
        pytest.param("os:getpid", [], 0, id="comes to its end"),
        pytest.param("builtins:int", ["x"], 1, id="raises"),
        pytest.param("os:abort", [], -signal.SIGABRT, id="is ended by a signal"),
        pytest.param("no_such_module:f", [], 1, id="is not there"),
    ],
)
def test_a_fork_tells_how_it_ended(server: ForkServer, function: str, arguments: list[str], status: int) -> None:
    fork = server.fork(function, arguments)
    assert fork.wait(SECONDS) == status
    assert fork.poll() == fork.returncode == status
    fork.kill()  # one that has ended is fine


def test_a_fork_runs_until_it_is_ended(server: ForkServer) -> None:
    fork = server.fork("signal:pause", [])
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.05)
    assert fork.poll() is None
    assert is_alive(fork.pid)
    fork.kill()
    assert fork.wait(SECONDS) == -signal.SIGKILL
    assert not is_alive(fork.pid)


def test_a_fork_has_its_descriptors_and_no_others(server: ForkServer) -> None:
    others = [server.fork("signal:pause", []) for _ in range(3)]
    reads, writes = os.pipe()
    pipe = os.readlink(f"/proc/self/fd/{reads}")
    fork = server.fork("os:read", [], [reads, reads])  # waits for bytes, at most as many as the number of the second
    deadline = time.monotonic() + SECONDS
    while sockets := [name for name in descriptors(fork) if name.startswith("socket:")]:
        assert time.monotonic() < deadline, sockets  # it closes the last one after it has sent its pid
    assert pipe in descriptors(fork)
    for each in (fork, *others):
        each.kill()
    os.close(reads)
    os.close(writes)


def descriptors(fork: Fork) -> set[str]:
    """What the descriptors of a process are open on."""
    found = set()
    for path in Path(f"/proc/{fork.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(path))
    return found


def test_forks_begin_with_default_signals(server: ForkServer) -> None:
    fork = server.fork("signal:pause", [])
    status = dict(line.split(":", 1) for line in Path(f"/proc/{fork.pid}/status").read_text().splitlines())
    fork.kill()
    caught = int(status["SigCgt"], 16)
    assert caught == 1 << (signal.SIGINT - 1), "as Python has it; not SIGCHLD, which the server catches"


def test_there_are_no_forks_without_a_server() -> None:
    server = SeparateForkServer()
    pid = server.fork("os:getpid", []).pid
    server.close()
    assert pid
    with pytest.raises(LabError, match="no process was forked"):
        server.fork("os:getpid", [])


def test_a_server_that_cannot_import_says_so() -> None:
    server = SeparateForkServer("no_such_module")
    with pytest.raises(LabError, match="no process was forked"):
        server.fork("os:getpid", [])
    server.close()


def test_a_server_ends_with_its_creator() -> None:
    text = "from nodeagent.lab.net.fork_server import ForkServer as F\nimport os\nf = F()\nf.fork('os:getpid', [])\n"
    text += "print(f.pid, flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    deadline = time.monotonic() + SECONDS
    while is_alive(int(done.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_server_can_be_a_fork_of_a_program_with_one_thread() -> None:
    text = "from nodeagent.lab.net.fork_server import ForkServer as F\nimport json, os\nprint('before')\n"
    text += "f = F('signal')\nended = f.fork('builtins:int', ['x']).wait(60)\n"
    text += "words = open(f'/proc/{f.pid}/cmdline').read().split('\\0')\nleads = os.getsid(f.pid) == f.pid\nf.close()\n"
    text += "print(json.dumps([ended, words[1:], leads, os.path.exists(f'/proc/{f.pid}')]))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=SECONDS)
    before, found = done.stdout.splitlines()
    assert before == "before", "once"
    assert json.loads(found) == [1, ["-m", "nodeagent.lab.net.fork_server", "signal", ""], True, False]
    assert "ValueError" in done.stderr, "its forks write to the streams of the program"
