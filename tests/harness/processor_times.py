"""Shows where the time of a run of tests goes, by folder: `make test TIMES=1`. A plugin of pytest.

*workers*: processor time of the processes that run the tests. *started*: of what these started and waited for. What a fork server forks is
known when the server ends, and then belongs to no test: it has a line of its own, and so has the rest (imports and collection).
"""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from tests.harness.worlds.forks import SeparateForkServer

FORKS, REST = "what fork servers forked", "imports and collection"
OUTPUT = "processor times"
Times = tuple[float, float, float]
"""Seconds: by the clock; of the processor, of this process and of ended children since they began."""
DEEPER = frozenset({"unit", "contract", "netns"})
"""Folders whose folders have a line each."""


def times_now() -> Times:
    used = os.times()
    return monotonic(), used.user + used.system, used.children_user + used.children_system


def folder_of(nodeid: str) -> str:
    """Returns the folder of a test below `tests`; of large folders the one below that. `.` for a test that is in none."""
    parts = Path(nodeid.partition("::")[0]).parent.parts[1:]
    return str(Path(*parts[: 2 if parts and parts[0] in DEEPER else 1]))


class ProcessorTimes:
    """Adds up in each worker; the process that the user started prints the sum."""

    def __init__(self) -> None:
        self._by_folder: dict[str, list[float]] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before, forked = times_now(), SeparateForkServer.spent
        try:
            return (yield)
        finally:
            clock, own, started = (after - earlier for after, earlier in zip(times_now(), before, strict=True))
            of_forks = SeparateForkServer.spent - forked
            self._add(folder_of(item.nodeid), (1, clock, own, started - of_forks))
            self._add(FORKS, (0, 0, 0, of_forks))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            _, own, started = times_now()
            known = [sum(column) for column in zip(*self._by_folder.values(), strict=True)] or [0.0] * 4
            self._add(REST, (0, 0, own - known[2], started - known[3]))
            output[OUTPUT] = json.dumps(self._by_folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        found: dict[str, list[float]] = json.loads(getattr(node, "workeroutput", {}).get(OUTPUT, "{}"))
        for folder, figures in found.items():
            self._add(folder, figures)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        terminalreporter.section("seconds by the clock, and of processor time")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """Yields a table, the dearest folder first."""
        yield f"{'':34}{'tests':>7}{'clock':>9}{'workers':>9}{'started':>9}"
        for folder, (tests, *seconds) in sorted(self._by_folder.items(), key=lambda one: -sum(one[1][2:])):
            yield f"{folder:34}{tests:7.0f}" + "".join(f"{one:9.1f}" for one in seconds)

    def _add(self, folder: str, figures: "list[float] | tuple[float, ...]") -> None:
        held = self._by_folder.setdefault(folder, [0.0] * 4)
        self._by_folder[folder] = [one + more for one, more in zip(held, figures, strict=True)]
