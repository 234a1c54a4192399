"""What the agent as a process takes: start, memory, changes, restart. `unshare -n python -m tests.bench.whole_agent`, as root.

It follows a cheap API server (`watch_server`) on another core. Times of the processor are user and system together, as the kernel accounts
them to the agent's process.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.process_figures import megabytes, processor_seconds
from tests.bench.table import print_table
from tests.bench.watch_server import NODE, POD_RANGE, kubeconfig

ROOT = Path(__file__).resolve().parents[2]
RATES = (400, 2000)
"""Changes a second."""
CHURN_SECONDS = 5
ALONE = 400
"""Changes that are each alone in their pass."""
CALM_SECONDS = 1.0
LARGE = ("10000x10", "50000x10", "100000x1")
STORM_SECONDS = 60
STORM_RATE = 2000
PATIENCE_SECONDS = 120.0


class Server:
    """The API server as a process."""

    def __init__(self, services: int, endpoints: int) -> None:
        argv = [sys.executable, "-m", "tests.bench.watch_server", str(services), str(endpoints)]
        self._process = subprocess.Popen(
            argv,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": ""},
        )
        self.pid = self._process.pid
        self.port = int(self._answer())

    def order(self, *words: object) -> str:
        """Returns the line with which the server answers."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Process:
    """`nodeagent run`, by the code of the checkout at `root`."""

    def __init__(self, root: Path, directory: Path, port: int) -> None:
        place = directory / "kubeconfig"
        place.write_text(kubeconfig(port))
        flags = ("--kubeconfig", place, "--node-name", NODE, "--cluster-cidr", POD_RANGE, "--events=false")
        argv = [sys.executable, "-m", "nodeagent", "run", *map(str, flags), "--socket", f"{directory}/socket"]
        self._log = (directory / "log").open("w+")
        self.started = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(root)}
        self._process = subprocess.Popen(argv, cwd=directory, stderr=self._log, env=environment)
        self.pid = self._process.pid

    def ready_after(self) -> float:
        """Waits until it is ready; returns the seconds since its start. Raises RuntimeError."""
        while time.monotonic() < self.started + PATIENCE_SECONDS and self._process.poll() is None:
            self._log.seek(0)
            if " ready: " in self._log.read():
                return time.monotonic() - self.started
            time.sleep(0.005)
        self._log.seek(0)
        raise RuntimeError(f"not ready: {self._log.read()[-2000:]}")

    def elements_written(self) -> int:
        self._log.seek(0)
        return sum(map(int, re.findall(r"sync done .* elements=(\d+)", self._log.read())))

    def processor_seconds(self) -> float:
        return processor_seconds(self._process.pid)

    def megabytes(self, what: str = "VmRSS") -> float:
        return megabytes(self._process.pid, what)

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE_SECONDS)
        self._log.close()


@contextmanager
def running(root: Path, port: int) -> Iterator[Process]:
    with tempfile.TemporaryDirectory() as directory:
        process = Process(root, Path(directory), port)
        try:
            yield process
        finally:
            process.end()


def measure(root: Path, services: int, endpoints: int) -> dict[str, float]:
    """One size, from an empty kernel: seconds (s), milliseconds (ms), MB."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    server = Server(services, endpoints)
    found: dict[str, float] = {}
    try:
        with running(root, server.port) as agent:
            found["start to ready s"] = agent.ready_after()
            found["start to first request s"] = float(server.order("asked")) - agent.started
            found["start to ready, processor s"] = agent.processor_seconds()
            time.sleep(CALM_SECONDS)
            found["RSS MB"] = agent.megabytes()
            half, nearly_all, every = map(float, server.order("alone", ALONE).split())
            found["a change alone, p50 ms until in force"] = half * 1000
            found["a change alone, p99 ms until in force"] = nearly_all * 1000
            found["a change alone, longest ms until in force"] = every * 1000
            for rate in RATES:
                before = agent.processor_seconds()
                late = server.order("churn", rate, CHURN_SECONDS).split()[0]
                time.sleep(0.2)
                found[f"a change at {rate}/s, processor ms"] = (
                    (agent.processor_seconds() - before) * 1000 / (rate * CHURN_SECONDS)
                )
                found[f"a change at {rate}/s, p99 ms until in force"] = float(late) * 1000
            found["RSS after changes MB"] = agent.megabytes()
            found["peak RSS, process MB"] = agent.megabytes("VmHWM")
        with running(root, server.port) as agent:  # puts back what the changes left
            agent.ready_after()
        with running(root, server.port) as agent:
            found["restart to ready s"] = agent.ready_after()
            found["restart to ready, processor s"] = agent.processor_seconds()
            found["restart, elements written"] = agent.elements_written()
    finally:
        server.end()
    return found


def measure_storm(root: Path, services: int, endpoints: int) -> dict[str, float]:
    """A minute of changes: what share of a core they take, when they are in force, and what memory is left of them."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    server = Server(services, endpoints)
    found: dict[str, float] = {}
    try:
        with running(root, server.port) as agent:
            agent.ready_after()
            server.order("churn", STORM_RATE, 2 * services / STORM_RATE)  # each Service has changed, and back
            for minute in ("first", "second"):
                before = agent.processor_seconds()
                late, rate = map(float, server.order("churn", STORM_RATE, STORM_SECONDS).split())
                spent = agent.processor_seconds() - before
                found[f"{minute} minute, changes a second"] = rate
                found[f"{minute} minute, share of a core"] = spent / (STORM_RATE * STORM_SECONDS / rate)
                found[f"{minute} minute, p99 ms until in force"] = late * 1000
                found[f"{minute} minute, RSS MB"] = agent.megabytes()
    finally:
        server.end()
    return found


def print_large(root: Path) -> None:
    """Prints how the process grows with its Services, and a minute of changes; each size in a network namespace of its own."""

    def apart(*argv: object) -> dict[str, float]:
        command = [
            "unshare",
            "-n",
            sys.executable,
            "-m",
            "tests.bench.whole_agent",
            "--root",
            str(root),
            *map(str, argv),
        ]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        figures: dict[str, float] = json.loads(done.stdout)
        return figures

    print_table([*LARGE], [apart("--size", size) for size in LARGE])
    print_table([LARGE[0]], [apart("--size", LARGE[0], "--storm")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="10000x10", help="services x endpoints")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout whose code is measured")
    parser.add_argument("--storm", action="store_true", help="two minutes of 2,000 changes a second instead")
    parser.add_argument("--large", action="store_true", help="print a table of large sizes, and such minutes")
    options = parser.parse_args()
    if options.large:
        print_large(options.root.resolve())
        return
    services, endpoints = map(int, options.size.split("x"))
    how = measure_storm if options.storm else measure
    print(json.dumps(how(options.root.resolve(), services, endpoints)))


if __name__ == "__main__":
    main()
