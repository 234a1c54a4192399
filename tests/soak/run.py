"""A run: rounds of steps and quiet, each judged by the laws."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.lab_plan import Settings
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.network_namespaces import LabError
from tests.soak.beat import Heartbeat
from tests.soak.breaking import Breaker
from tests.soak.figures import deviations, figures, tracked
from tests.soak.laws import ROOM, Times, Violation, violations
from tests.soak.records import Deviation, Figure, History, Step
from tests.soak.stage import Stage
from tests.soak.witnesses import Notes, Witnesses

NODES, PODS = 3, 2
SETTLE_SECONDS = 10.0
DRAIN_SECONDS = 30.0
WARM_SECONDS = 2.0
NAMES_SECONDS, MOST_NAMES_SECONDS = 2.5, 8.0
"""After the last change, so that answers and connections are seen that must be new; the first on an idle machine."""


@dataclass(slots=True)
class Summary:
    """What a run was."""

    steps: int = 0
    attempts: int = 0
    failed: int = 0
    held: int = 0
    lookups: int = 0
    slowest: float = 1.0
    settled: list[float] = field(default_factory=list)

    def add(self, history: History, settled: float) -> None:
        """Adds a round."""
        self.steps += len(history.steps)
        self.attempts += len(history.attempts)
        self.failed += sum(1 for one in history.attempts if one.failure)
        self.held += len(history.held)
        self.lookups += len(history.lookups)
        self.slowest = max(self.slowest, *(beat.factor for beat in history.beats), 1.0)
        self.settled.append(settled)


@dataclass(frozen=True, slots=True)
class Options:
    """planted: the program of the agents instead of the usual one. clock: the preload library that changes clocks, or None. nodes:
    how many. interval: seconds between two connections of a client. drain: whether tracked connections must be gone. of_nodes:
    whether nodes connect, too. snapshots: whether agents keep their state on disk. etcd: a directory that does not exist, where a member
    of etcd keeps the API server's objects; None: the server has its own store."""

    base: Path
    planted: Sequence[str] = ()
    clock: Path | None = None
    nodes: int = NODES
    interval: float = 0.12
    drain: bool = True
    agent_options: tuple[str, ...] = ()
    of_nodes: bool = True
    snapshots: bool = False
    etcd: Path | None = None


class Run:
    """A lab with its clients, from entering the context to leaving it."""

    def __init__(self, options: Options, fork_server: ForkServer, say: Callable[[str], None]) -> None:
        self._options = options
        settings = Settings("soak", options.nodes, PODS, ipv6=True, page=False, agent_options=options.agent_options)
        self._directory = LabDirectory(options.base, "soak")
        self.stage = Stage(
            settings,
            self._directory,
            fork_server,
            planted=options.planted,
            clock=options.clock,
            snapshots=options.snapshots,
            etcd=options.etcd,
            say=say,
        )
        self.summary = Summary()
        self._first: list[Figure] = []

    def __enter__(self) -> Self:
        self._beat = Heartbeat()
        try:
            self.stage.build()
            self.breaker = Breaker(self.stage)
            self._witnesses = Witnesses(
                [one for one in self.stage.clients() if self._options.of_nodes or one.name != one.node],
                list(self.stage.nodes),
                self.stage.offered,
                self.stage.settings.dns_addresses[0],
                self._options.interval,
            )
            self._measure_first()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def notes(self) -> Notes:
        """What the clients saw since the round began."""
        return self._witnesses.notes

    @property
    def slowest(self) -> float:
        """How much slower than alone a piece of work was on average."""
        factors = [beat.factor for beat in self._beat.beats]
        return sum(factors) / max(1, len(factors))

    def close(self) -> None:
        """Removes everything."""
        self._beat.stop()
        if hasattr(self, "_witnesses"):
            self._witnesses.stop()
        self.stage.close()

    def _measure_first(self) -> None:
        self.breaker.rest(WARM_SECONDS)
        self._first = figures(self.stage)

    def round(self, steps: Sequence[Step]) -> tuple[History, list[Violation]]:
        """Carries out steps, waits for quiet. Returns what happened, and what of it violates a law: a step that cannot be carried out
        or undone, too; after that the lab is of no use."""
        self._begin_round()
        settled, last = 0.0, list[Figure]()
        try:
            for step in steps:
                self.breaker.carry_out(step)
            self.breaker.come_back(PODS)
            settled = self._settle()
            self.breaker.rest(min(NAMES_SECONDS * self._slowness(), MOST_NAMES_SECONDS))
            last = self._drain()
        except LabError as error:
            self.stage.deviations.append(Deviation(time.monotonic(), "the lab", f"stays broken: {error}"))
        history = self._history(steps, last)
        self.summary.add(history, settled)
        return history, violations(history)

    def _begin_round(self) -> None:
        began = time.monotonic()
        notes, stage = self._witnesses.notes, self.stage
        for kept in (
            notes.attempts,
            notes.held,
            notes.lookups,
            stage.deviations,
            stage.leaks,
            stage.ends,
            self.breaker.faults,
        ):
            kept.clear()
        stage.truth.forget(began)
        self._witnesses.paused.clear()
        self._beat.beats[:] = self._beat.beats[-60:]

    def _slowness(self) -> float:
        now = time.monotonic()
        return Times(History(beats=tuple(self._beat.beats))).slowness(now, now)

    def _settle(self) -> float:
        """Waits until every node has what is desired. Returns the seconds that it took."""
        began = time.monotonic()
        while found := deviations(self.stage):
            if time.monotonic() > began + SETTLE_SECONDS * self._slowness():
                self.stage.deviations += found
                break
            self.breaker.rest(0.2)
        return time.monotonic() - began

    def _drain(self) -> list[Figure]:
        """Waits without new connections until the figures are those of the beginning, for a time. Returns the last ones."""
        self._witnesses.paused.set()
        began = time.monotonic()
        while True:
            found: list[Figure] = []
            with suppress(OSError, LabError):
                found = figures(self.stage)
            if found and (not self._options.drain or not self._grown(found)):
                return found
            if time.monotonic() > began + DRAIN_SECONDS:
                if "conntrack" in self._grown(found):
                    self.stage.deviations += [
                        Deviation(time.monotonic(), node, f"tracked connections stay: {tracked(self.stage, node)}")
                        for node in self.stage.nodes
                    ]
                return found or figures(self.stage)
            self.breaker.rest(0.5)

    def _grown(self, found: Sequence[Figure]) -> list[str]:
        first = {(one.node, one.name): one.value for one in self._first}
        return [
            one.name for one in found if one.value > first[(one.node, one.name)] * ROOM[one.name][0] + ROOM[one.name][1]
        ]

    def _history(self, steps: Sequence[Step], last: Sequence[Figure]) -> History:
        notes = self._witnesses.notes
        return History(
            steps=tuple(steps),
            spans=self.stage.truth.spans(),
            faults=(*self.breaker.faults, *self.breaker.open_faults()),
            attempts=tuple(notes.attempts),
            held=tuple(notes.held),
            lookups=tuple(notes.lookups),
            beats=tuple(self._beat.beats),
            figures=(*self._first, *last),
            deviations=tuple(self.stage.deviations),
            leaks=tuple(self.stage.leaks),
            ends=tuple(self.stage.ends),
        )


def save(path: Path, value: object) -> None:
    """Writes a value as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(value))


def read_steps(path: Path) -> tuple[Step, ...]:
    """Returns the steps of a file that a failed run wrote."""
    return msgspec.json.decode(path.read_bytes(), type=tuple[Step, ...])
