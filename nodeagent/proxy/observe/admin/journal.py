"""Records what the last passes did, and since when each problem exists."""

from collections import deque
from collections.abc import Callable
from datetime import datetime

from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport
from nodeagent.proxy.observe.admin.admin_documents import KnownProblem, TableWork, Transaction
from nodeagent.proxy.observe.problem_board import ProblemChanges

KEPT = 500
_NAMED = 5


class Journal:
    """Listens to passes and to problems. wall: the time of day."""

    def __init__(self, wall: Callable[[], datetime]) -> None:
        self._wall = wall
        self._transactions: deque[Transaction] = deque(maxlen=KEPT)
        self._since: dict[Problem, str] = {}
        self.passes = 0
        self.last_pass = ""
        self.programmed = False
        self.services = 0

    @property
    def transactions(self) -> tuple[Transaction, ...]:
        """The transactions, the oldest first."""
        return tuple(self._transactions)

    @property
    def problems(self) -> tuple[KnownProblem, ...]:
        """All present problems, sorted by subject."""
        return tuple(
            KnownProblem(since, one.subject, one.reason, one.detail) for one, since in sorted(self._since.items())
        )

    def passed(self, report: PassReport) -> None:
        self.passes += 1
        self.last_pass = self._now()
        self.services = report.services
        self.programmed = self.programmed or bool(report.programmed)
        if not report.touched and report.ok:
            return
        names = tuple(str(key) for key, _ in zip(report.changed, range(_NAMED), strict=False))
        tables = tuple(
            TableWork(family.value, table.touched, table.messages, table.new_table, table.seconds, table.error)
            for family, table in report.families.items()
        )
        self._transactions.append(
            Transaction(
                self.last_pass, report.seconds, report.waited_seconds, report.full, len(report.changed), names, tables
            )
        )

    def problems_changed(self, changes: ProblemChanges) -> None:
        now = self._now()
        for one in changes.solved:
            self._since.pop(one, None)
        self._since.update(dict.fromkeys(changes.new, now))

    def _now(self) -> str:
        return self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
