"""A fork of a process is as a new process would be. In a program of its own: pytest has threads."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CREATOR = """
import atexit, json, os, signal, sys
from nodeagent.lab.net.own_fork import fork_off

atexit.register(print, "the creator ends")
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
others = os.pipe(), os.pipe()
reading, writing = os.pipe()
words = ("python", "-m", "something", "else")

def signals():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return [int(status[name], 16) for name in ("SigCgt", "SigBlk", "SigIgn")]

def run():
    print("said")
    print("complained", file=sys.stderr)
    found = {
        "session": os.getsid(0) == os.getpid(),
        "descriptors": sorted(int(one) for one in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{one}")),
        "command": open("/proc/self/cmdline").read().split("\\0"),
        "name": open("/proc/self/comm").read(),
        "signals": signals(),
        "read": sys.stdin.read(),
    }
    os.write(kept, json.dumps(found).encode())
    return STATUS

kept = os.dup(others[1][1])
with open("/dev/null") as nothing:
    print("printed before")
    fork = fork_off(run, words, (nothing.fileno(), 1, writing), {kept})
os.close(writing)
os.close(kept)
os.close(others[1][1])
found = json.loads(os.read(others[1][0], 10000) or "null")
status = fork.wait(60)
fork.kill()
print(json.dumps([found, status, fork.poll(), os.read(reading, 10000).decode(), kept, signals()[1]]))
"""


def made(returned: str) -> tuple[str, Any]:
    """What the creator and its fork print beside what the creator found, and that."""
    program = [sys.executable, "-c", CREATOR.replace("STATUS", returned)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    *beside, found, end = done.stdout.splitlines()
    return "\n".join([*beside, end]), json.loads(found)


def test_it_has_what_it_is_given_and_nothing_else() -> None:
    printed, (found, status, again, complained, kept, blocked) = made("7")

    assert printed == "printed before\nsaid\nthe creator ends", "each once"
    assert (status, again, complained) == (7, 7, "complained\n")
    assert found["session"]
    assert found["descriptors"] == [0, 1, 2, kept]
    assert found["command"] == ["python", "-m", "something", "else", ""]
    assert found["name"] == "python\n"
    assert found["read"] == ""
    caught, held_back, ignored = found["signals"]
    assert caught == 1 << (signal.SIGINT - 1), "as Python has it"
    assert held_back == blocked == 0
    assert ignored & 1 << (signal.SIGHUP - 1), "what a new process would inherit"


@pytest.mark.parametrize(
    ("returned", "status"),
    [
        pytest.param("1 / 0", 1, id="raises"),
        pytest.param("sys.exit(3)", 1, id="ends in a way of its own"),
        pytest.param("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, id="is ended by a signal"),
    ],
)
def test_however_it_ends_it_does_not_go_on_as_its_creator(returned: str, status: int) -> None:
    printed, (found, ended, *_) = made(returned)

    assert found is not None
    assert ended == status
    assert printed.count("the creator ends") == 1
