"""`python -m tests.soak`: rounds of random faults, until the time is over or a law is violated. Needs root.

A round that fails is written to a directory: its steps, and all that was seen. Then shorter lists of steps are tried, each in a new
lab, and the shortest that still fails is printed with the command that repeats it. Exit status: 0 no law was violated, 1 one was.
"""

import argparse
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp

from nodeagent.lab.lab_plan import node_name
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.member import ACTOR
from nodeagent.lab.net.warm_launcher import modules_of
from tests.harness.worlds.forks import SeparateForkServer
from tests.soak.laws import Violation
from tests.soak.machine import machine
from tests.soak.planted import BUGS, program_of
from tests.soak.records import History, Step
from tests.soak.run import NODES, Options, Run, read_steps, save
from tests.soak.schedule import Shape, schedule
from tests.soak.seeds_table import row_of, write_rows
from tests.soak.shrink import shrink

CLOCK = Path(__file__).with_name("clock.c")
ROUND_SECONDS = 45.0
DISK_MEGABYTES = 64
ETCD_MEGABYTES = 640
"""It keeps five log files of 64 MB, writes another, and copies its database of 32 MB."""
ETCD_SHARE = 1 / 3
"""Of seeds; with them the API server keeps its objects in etcd."""
COMMANDS = ("run", "show", "check", "diff", "apiserver")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180.0, help="time for all rounds (default: 180)")
    parser.add_argument("--seed", default="", help="repeats the steps of a run that printed it")
    parser.add_argument("--seeds", default="", help="several, with spaces between: a run of each, one after another")
    parser.add_argument("--write", type=Path, help="the document whose table of seeds gets the rows of these")
    parser.add_argument(
        "--storage", choices=("own", "etcd"), default="", help="of the API server (default: the seed decides)"
    )
    parser.add_argument("--round", type=int, default=1, help="begin with this round")
    parser.add_argument("--steps", type=Path, help="carry out the steps of this file, once")
    parser.add_argument(
        "--planted", choices=sorted(BUGS), default="", help="agents with this defect, which must be found"
    )
    parser.add_argument("--shrink", type=float, default=300.0, help="seconds for shorter lists of steps; 0: none")
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="directory for what a failed run writes")
    options = parser.parse_args(arguments)
    seeds = options.seeds.split() or [options.seed or secrets.token_hex(3)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the lab and its disk are removed
    fork_server = SeparateForkServer(ACTOR, *modules_of(*COMMANDS))
    status = 0
    try:
        for seed in seeds:
            soak = Soak(fork_server, options.planted, options.out, seed, options.storage or storage_of(seed))
            if options.steps:
                return soak.repeat(read_steps(options.steps), options.shrink)
            status |= soak.rounds(options.seconds, options.round, options.shrink)
            say(soak.row)
            if options.write:
                options.write.write_text(write_rows(options.write.read_text(), {seed: soak.row}, machine()))
        return status
    finally:
        fork_server.close()


def storage_of(seed: str) -> str:
    """Returns where the API server keeps its objects in a run of this seed."""
    return "etcd" if random.Random(f"storage {seed}").random() < ETCD_SHARE else "own"


def say(text: str) -> None:
    print(text, flush=True)


class Soak:
    """A command: rounds in one lab, trials each in a new one. row: of the table of seeds, after the rounds."""

    def __init__(self, fork_server: ForkServer, planted: str, out: Path, seed: str, storage: str) -> None:
        self._fork_server = fork_server
        self._has_clocks = shutil.which("cc") is not None
        if not self._has_clocks:
            say("no C compiler on this machine: clocks do not jump")
        self._planted = planted
        self._out = out
        self._seed = seed
        self._storage = storage
        self.row = ""
        nodes = [node_name(number) for number in range(1, NODES + 1)]
        self._shape = Shape(nodes, clocks=self._has_clocks, disk=True, etcd=storage == "etcd")

    @contextmanager
    def _lab(self) -> Iterator[Run]:
        with ExitStack() as stack:
            base = stack.enter_context(small_disk(DISK_MEGABYTES))
            etcd = stack.enter_context(small_disk(ETCD_MEGABYTES)) / "etcd" if self._storage == "etcd" else None
            planted = program_of(self._planted) if self._planted else ()
            clock = clock_library(base) if self._has_clocks else None
            options = Options(base, planted, clock, snapshots=True, etcd=etcd)
            yield stack.enter_context(Run(options, self._fork_server, lambda _: None))

    def rounds(self, seconds: float, number: int, shrinking: float) -> int:
        """Returns the exit status."""
        began = time.monotonic()
        say(
            f"seed {self._seed}: {seconds:.0f} s, {NODES} nodes, storage: {self._storage}"
            + (f", planted: {self._planted}" if self._planted else "")
        )
        with self._lab() as run:
            say(f"the lab is up after {time.monotonic() - began:.1f} s")
            while (left := seconds - (time.monotonic() - began)) > 0:
                steps = schedule(f"{self._seed}-{number}", min(ROUND_SECONDS, max(left - 10.0, 5.0)), self._shape)
                history, found = run.round(steps)
                say(f"round {number}: {describe(history, run.summary.settled[-1])}")
                if found:
                    break
                number += 1
            self.row = row_of(self._seed, self._storage, run.summary, len(found))
        return self._fail(history, found, f"{self._seed}-{number}", shrinking) if found else 0

    def repeat(self, steps: Sequence[Step], shrinking: float) -> int:
        """Carries out these steps. Returns the exit status."""
        with self._lab() as run:
            history, found = run.round(steps)
        say(describe(history, 0.0))
        return self._fail(history, found, f"{self._seed}-steps", shrinking) if found else 0

    def _fail(self, history: History, found: Sequence[Violation], name: str, shrinking: float) -> int:
        for violation in found:
            say(f"VIOLATED {violation.law}: {violation.count} times")
            for line in violation.lines:
                say(f"    {line}")
        save(self._out / f"{name}.steps.json", history.steps)
        save(self._out / f"{name}.history.json", history)
        say(f"written: {self._out / name}.steps.json and {name}.history.json")
        if shrinking:
            self._shrink(history.steps, {violation.law for violation in found}, name, time.monotonic() + shrinking)
        return 1

    def _shrink(self, steps: Sequence[Step], laws: set[str], name: str, deadline: float) -> None:
        trials = Counter[str]()

        def fails(candidate: Sequence[Step]) -> bool:
            with self._lab() as run:
                _, found = run.round(candidate)
            same = bool(laws & {violation.law for violation in found})
            trials["fail" if same else "hold"] += 1
            say(f"  {len(candidate)} of {len(steps)} steps: {'fails' if same else 'holds'}")
            return same

        shortest = shrink(steps, fails, lambda: time.monotonic() < deadline)
        path = self._out / f"{name}.shortest.json"
        save(path, shortest)
        say(f"the shortest of {trials.total()} lists that fails has {len(shortest)} of {len(steps)} steps:")
        for step in shortest:
            say(f"    {step}")
        planted = f" --planted {self._planted}" if self._planted else ""
        say(f"to repeat it: python -m tests.soak --storage {self._storage} --steps {path}{planted}")


def describe(history: History, settled: float) -> str:
    failed = sum(1 for one in history.attempts if one.failure)
    lost = sum(1 for one in history.held if one.failure)
    slow = max((beat.factor for beat in history.beats), default=1.0)
    return (
        f"{len(history.steps)} steps, {len(history.faults)} faults, {len(history.attempts)} connections ({failed} failed), "
        f"{len(history.held)} held ({lost} lost), {len(history.lookups)} lookups, as wanted after {settled:.1f} s, "
        f"machine {slow:.1f} times slower at most"
    )


def clock_library(place: Path) -> Path:
    """Returns the preload library that changes clocks, made there."""
    library = place / "clock.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK)], check=True)
    return library


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A directory on a disk of its own, which can be filled."""
    place = Path(mkdtemp(prefix="nodeagent-soak-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "soak", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)
        place.rmdir()


if __name__ == "__main__":
    sys.exit(main())
