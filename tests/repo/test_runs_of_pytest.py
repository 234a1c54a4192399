"""How this project's tests are run: in several processes, in the background too, and past a test that is stuck."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis.configuration import storage_directory

ROOT = Path(__file__).parents[2]
STUCK = """
import signal, time

def test_before(): pass

def test_waits():
    time.sleep(600)

def test_between(): pass

def test_cannot_be_interrupted():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(600)

def test_after(): pass
"""
SIGNALS = """
import signal, subprocess, sys

def test_of_a_child():
    look = "import signal; print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGHUP).name)"
    printed = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["default_int_handler", "SIG_DFL"]
"""

TAKES_TIME = """
import subprocess, time

def test_that_computes():
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass

def test_that_starts_something():
    subprocess.run(["python3", "-c", "import time\\nwhile time.process_time() < 0.5: pass"], check=True)
"""


def run(directory: Path, text: str, *options: str, start: str = "") -> "subprocess.CompletedProcess[str]":
    """pytest with this project's options and conftest.py on a file of this text; `start`: shell commands before it.

    Hypothesis keeps there what it found in our sources: in an empty directory it would read all of them again.
    """
    (directory / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (directory / "test_given.py").write_text(text)
    here = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(directory), "--confcutdir", str(directory)]
    command = [sys.executable, "-m", "pytest", *here, *options, str(directory / "test_given.py")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        ["sh", "-c", f'{start}\nexec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd=directory,
        env=environment | {"PYTHONPATH": str(ROOT), "HYPOTHESIS_STORAGE_DIRECTORY": str(storage_directory().path)},
    )


def test_a_test_that_is_stuck_fails_alone_and_by_name(tmp_path: Path) -> None:
    """Also one that no exception can end: its process goes, and another one takes the other tests."""
    limits = [
        "-o",
        "timeout=3",
        "-o",
        "faulthandler_timeout=8",
        "--numprocesses=1",
        "--dist=loadfile",
        "--no-loadscope-reorder",
    ]

    printed = run(tmp_path, STUCK, *limits).stdout

    assert "2 failed, 3 passed" in printed
    assert "FAILED test_given.py::test_waits" in printed
    assert "FAILED test_given.py::test_cannot_be_interrupted" in printed


@pytest.mark.parametrize("workers", ["0", "1"])
def test_children_have_default_signals_when_the_run_has_not(tmp_path: Path, workers: str) -> None:
    """A run that was started in the background ignores SIGINT, one under nohup SIGHUP."""
    done = run(tmp_path, SIGNALS, f"--numprocesses={workers}", start="trap '' INT HUP")

    assert done.returncode == 0, done.stdout


def test_a_run_shows_where_its_time_goes_if_asked(tmp_path: Path) -> None:
    printed = run(tmp_path, TAKES_TIME, "-n", "1", start="export TIMES=1").stdout
    table = {
        line.split("  ")[0]: line.split()[-4:]
        for line in printed.partition("seconds by the clock")[2].splitlines()[2:-1]
    }
    tests, clock, workers, started = map(float, table["."])
    assert tests == 2
    assert clock >= 1.0
    assert workers >= 0.5 <= started
    assert float(table["imports and collection"][2]) > 0.1
