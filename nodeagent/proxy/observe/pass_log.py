"""Logs passes, and one line for every problem that appears or disappears."""

import logging
from collections.abc import Callable
from itertools import starmap
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.observe.problem_board import ProblemChanges

logger = logging.getLogger(__name__)

SUMMARY_SECONDS = 1.0
"""Between two summaries of passes."""
PROBLEM_LINES = 20
"""Of many problems that appear or disappear at once, this many are written, and the number of the others."""


class CallLater(Protocol):
    """Calls `action` after this many seconds (`loop.call_later`)."""

    def __call__(self, seconds: float, action: Callable[[], None], /) -> object: ...


class PassLog:
    """Logs what passes did: a summary of those that changed something, at most once a second; each of them at debug level.

    The first pass, and the first change after a second without a line, are logged at once.
    """

    def __init__(self, later: CallLater) -> None:
        self._later = later
        self._first = True
        self._waiting = False
        self._passes = 0
        self._elements = 0
        self._longest = 0.0
        self._latest: PassReport | None = None

    def passed(self, report: PassReport) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("pass done %s", _figures(report, report.touched, report.seconds))
        if not self._first and not report.touched:
            return
        self._first = False
        self._passes += 1
        self._elements += report.touched
        self._longest = max(self._longest, report.seconds)
        self._latest = report
        if not self._waiting:
            self._write()

    def flush(self) -> None:
        """Writes what has not been written yet."""
        latest, self._latest = self._latest, None
        if latest is not None:
            logger.info("sync done passes=%d %s", self._passes, _figures(latest, self._elements, self._longest))
        self._passes = self._elements = 0
        self._longest = 0.0

    def _write(self) -> None:
        self._waiting = self._latest is not None
        if self._waiting:
            self.flush()
            self._later(SUMMARY_SECONDS, self._write)


class ProblemLog:
    """Logs a line for each problem that appears (warning) or disappears (info)."""

    def problems_changed(self, changes: ProblemChanges) -> None:
        self._write(changes.new, logging.WARNING, "problem: %s")
        self._write(changes.solved, logging.INFO, "solved: %s")

    @staticmethod
    def _write(problems: tuple[Problem, ...], level: int, text: str) -> None:
        for problem in problems[:PROBLEM_LINES]:
            logger.log(level, text, problem)
        if len(problems) > PROBLEM_LINES:
            logger.log(level, text, f"and {len(problems) - PROBLEM_LINES} more")


def _figures(report: PassReport, elements: int, longest: float) -> str:
    return (
        f"full={'yes' if report.full else 'no'} elements={elements} ms={longest * 1000:.1f}"
        f" services={report.services} tables={','.join(starmap(_table, report.families.items()))}"
    )


def _table(family: Family, table: TableReport) -> str:
    state = "failed" if not table.ok else "new" if table.new_table else "ok"
    return f"{family.value}:{state}"
