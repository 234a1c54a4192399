"""Labs for tests."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodeagent.lab.caller import take_down
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.net.network_namespaces import our_namespaces
from tests.harness.looking import look_later
from tests.harness.warm_start import WarmLauncher

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
"""Seconds; generous, because the machine may be busy."""
CALLED = "python -m nodeagent"


@dataclass
class Outcome:
    """What a command did. `seconds` from its start to its end."""

    status: int
    output: str
    errors: str
    seconds: float


class Bench:
    """Runs `nodeagent lab` on labs of a directory of its own; what is run to its end is forked."""

    def __init__(self, base: Path, launcher: WarmLauncher) -> None:
        self.base = base
        self._launcher = launcher
        self.environment = os.environ | {"NODEAGENT_LAB_DIR": str(base), "COLUMNS": "200", "PYTHONPATH": str(ROOT)}

    def directory(self, name: str = "lab") -> LabDirectory:
        return LabDirectory(self.base, name)

    @contextmanager
    def start(self, *arguments: str, name: str = "lab") -> "Iterator[subprocess.Popen[str]]":
        """A command that goes on; waited for in the end. A scene that has failed ends it: it may have 1000 s to go."""
        command = [sys.executable, "-m", "nodeagent", "lab", "--name", name, *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=self.environment) as process:
            try:
                yield process
            except BaseException:
                process.terminate()
                raise

    def run(self, *arguments: str, name: str = "lab", seconds: float = DEADLINE) -> Outcome:
        began = time.monotonic()
        done = self._launcher.command(
            "", ["lab", "--name", name, *arguments], environment=self.environment, timeout=seconds, called=CALLED
        )
        return Outcome(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def do(self, *arguments: str, name: str = "lab", seconds: float = DEADLINE) -> str:
        """What a command prints that succeeds."""
        outcome = self.run(*arguments, name=name, seconds=seconds)
        assert outcome.status == 0, outcome.errors + outcome.output
        return outcome.output

    def outside(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """`nodeagent WORDS` on this machine, with the lab's kubeconfig."""
        kubeconfig = self.do("kubeconfig").strip()
        return self._launcher.command(
            "", words, environment=self.environment | {"KUBECONFIG": kubeconfig}, timeout=2 * DEADLINE, called=CALLED
        )

    def supervisor(self, name: str = "lab") -> int:
        pid = self.directory(name).holder()
        assert pid is not None
        return pid

    def namespaces(self, supervisor: int) -> list[str]:
        return [name for name in our_namespaces() if name.startswith(f"nodeagent-lab-{supervisor}-")]


def wait_until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds
        look_later(began)


@contextmanager
def bench_of_its_own(launcher: WarmLauncher) -> Iterator[Bench]:
    """A bench; every lab on it is taken down in the end."""
    with TemporaryDirectory(prefix="nodeagent-lab-", ignore_cleanup_errors=True) as scratch:
        found = Bench(Path(scratch), launcher)
        try:
            yield found
        finally:
            for entry in found.base.iterdir():
                take_down(found.directory(entry.name), patience=10.0)


@pytest.fixture(scope="session")
def eventually() -> Callable[..., None]:
    """Returns when a condition holds; fails when it does not in time."""
    return wait_until


@pytest.fixture
def bench(network_namespaces: None, warm_launcher: WarmLauncher) -> Iterator[Bench]:
    """Labs of the test's own, none there yet."""
    with bench_of_its_own(warm_launcher) as found:
        yield found


@pytest.fixture(scope="module")
def shared(network_namespaces: None, warm_launcher: WarmLauncher) -> Iterator[Bench]:
    """A lab of two nodes with two pods each, both families, for the tests of a module."""
    with bench_of_its_own(warm_launcher) as found:
        found.do("up", "--nodes", "2", "--pods", "2", "--ipv6")
        yield found
