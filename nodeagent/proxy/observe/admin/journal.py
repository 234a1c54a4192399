"""Records what the last passes did, and since when each problem exists."""

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.observe.admin.admin_documents import KnownProblem, TableWork, Transaction
from nodeagent.proxy.observe.problem_board import ProblemChanges

KEPT = 500
_NAMED = 5


class _Noted(NamedTuple):
    """A pass of which a `Transaction` is made when somebody asks."""

    ended: datetime
    seconds: float
    waited_seconds: float
    full: bool
    services: int
    names: tuple[str, ...]
    families: Mapping[Family, TableReport]


class Journal:
    """Listens to passes and to problems. wall: the time of day."""

    def __init__(self, wall: Callable[[], datetime]) -> None:
        self._wall = wall
        self._noted: deque[_Noted] = deque(maxlen=KEPT)
        self._last_pass: datetime | None = None
        self._since: dict[Problem, str] = {}
        self.passes = 0
        self.programmed = False
        self.services = 0

    @property
    def transactions(self) -> tuple[Transaction, ...]:
        """The transactions, the oldest first."""
        return tuple(map(_transaction, self._noted))

    @property
    def last_pass(self) -> str:
        """When the last pass ended; empty before the first."""
        return "" if self._last_pass is None else _text(self._last_pass)

    @property
    def problems(self) -> tuple[KnownProblem, ...]:
        """All present problems, sorted by subject."""
        return tuple(
            KnownProblem(since, one.subject, one.reason, one.detail) for one, since in sorted(self._since.items())
        )

    def passed(self, report: PassReport) -> None:
        self.passes += 1
        self._last_pass = self._wall()
        self.services = report.services
        self.programmed = self.programmed or bool(report.programmed)
        if not report.touched and report.ok:
            return
        names = tuple(map(str, islice(report.changed, _NAMED)))
        self._noted.append(
            _Noted(
                self._last_pass,
                report.seconds,
                report.waited_seconds,
                report.full,
                len(report.changed),
                names,
                report.families,
            )
        )

    def problems_changed(self, changes: ProblemChanges) -> None:
        now = _text(self._wall())
        for one in changes.solved:
            self._since.pop(one, None)
        self._since.update(dict.fromkeys(changes.new, now))


def _transaction(noted: _Noted) -> Transaction:
    tables = tuple(
        TableWork(family.value, table.touched, table.messages, table.new_table, table.seconds, table.error)
        for family, table in noted.families.items()
    )
    return Transaction(
        _text(noted.ended), noted.seconds, noted.waited_seconds, noted.full, noted.services, noted.names, tables
    )


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
