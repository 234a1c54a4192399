"""One line for every pass that changed something, and one for every problem that comes or goes."""

import logging
from collections.abc import Mapping
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.observe.problem_board import ProblemChanges

logger = logging.getLogger(__name__)

PROBLEM_LINES = 20
"""Of many problems that come or go at once, this many are written out, and how many more there are."""


class FamilyResult(Protocol):
    """One family's part of a pass."""

    @property
    def touched(self) -> int: ...
    @property
    def new_table(self) -> bool: ...
    @property
    def error(self) -> str | None: ...


class Pass(Protocol):
    """What a pass did, as far as it is worth a line."""

    @property
    def started(self) -> float: ...
    @property
    def finished(self) -> float: ...
    @property
    def services(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def touched(self) -> int: ...
    @property
    def families(self) -> Mapping[Family, FamilyResult]: ...


class PassLog:
    """The line of a pass: written when it is the first or changed something, else for debugging only."""

    def __init__(self) -> None:
        self._first = True

    def passed(self, report: Pass) -> None:
        """Called after every pass."""
        milliseconds = (report.finished - report.started) * 1000
        level = logging.INFO if self._first or report.touched else logging.DEBUG
        logger.log(
            level,
            "sync done full=%s elements=%d ms=%.1f services=%d tables=%s",
            "yes" if report.full else "no",
            report.touched,
            milliseconds,
            report.services,
            ",".join(_table(family, result) for family, result in report.families.items()),
        )
        self._first = False


class ProblemLog:
    """The lines of problems."""

    def problems_changed(self, changes: ProblemChanges) -> None:
        """Called when problems came or went."""
        self._write(changes.new, logging.WARNING, "problem: %s")
        self._write(changes.solved, logging.INFO, "solved: %s")

    @staticmethod
    def _write(problems: tuple[Problem, ...], level: int, text: str) -> None:
        for problem in problems[:PROBLEM_LINES]:
            logger.log(level, text, problem)
        if len(problems) > PROBLEM_LINES:
            logger.log(level, text, f"and {len(problems) - PROBLEM_LINES} more")


def _table(family: Family, result: FamilyResult) -> str:
    state = "failed" if result.error else "new" if result.new_table else "ok"
    return f"{family.value}:{state}"
