"""Whether programming keeps up, from the queue of changes and the reports of passes."""

from collections.abc import Callable, Iterable
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.reports import PassReport
from nodeagent.proxy.observe.health import HealthState


class Queue(Protocol):
    """Where changes wait for a pass."""

    @property
    def oldest(self) -> float | None:
        """When the oldest change came that no pass has finished; None if there is no such change."""
        ...


class HealthMonitor:
    """Reads the queue when it is asked, so that it knows of a change even while a pass hangs over it.

    queue: read only.
    families: those that are programmed.
    timeout_seconds: how long a change may wait.
    clock: the one of the queue and the passes.
    """

    def __init__(
        self,
        queue: Queue,
        families: Iterable[Family],
        *,
        timeout_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._reported = HealthState.before_any_pass(families)
        self.timeout_seconds = timeout_seconds
        self._clock = clock

    @property
    def state(self) -> HealthState:
        """How far each family is."""
        oldest = self._queue.oldest
        return self._reported if oldest is None else self._reported.changed(oldest)

    @property
    def oldest_change(self) -> float | None:
        """When the oldest change came that is not programmed in each family, as a time of `clock`; None: nothing waits."""
        waiting = (self._queue.oldest, self._reported.waiting_since)
        return min((at for at in waiting if at is not None), default=None)

    def passed(self, report: PassReport) -> None:
        """Take in how a pass ended."""
        succeeded = {family: table.ok for family, table in report.families.items()}
        before = self._reported.changed(report.started - report.waited_seconds)
        self._reported = before.passed(succeeded, started=report.started, finished=report.finished)

    def is_healthy(self) -> bool:
        """Whether no family is late, whatever happens to the node."""
        return self.state.is_healthy(self._clock(), self.timeout_seconds)
