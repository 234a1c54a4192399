"""Decides whether programming keeps up, from the queue of changes and the reports of passes."""

from collections.abc import Callable, Iterable
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.reports import PassReport
from nodeagent.proxy.observe.health import HealthState


class Queue(Protocol):
    """The queue in which changes wait for a pass."""

    @property
    def oldest(self) -> float | None:
        """When the oldest change came that no pass has finished; None if there is no such change."""
        ...


class HealthMonitor:
    """Reads the queue whenever it is called, so that it sees a change even while a pass hangs on it.

    queue: read only.
    families: those that are programmed.
    timeout_seconds: how long a change may wait.
    clock: that of the queue and the passes.
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
        """The progress of each family."""
        oldest = self._queue.oldest
        return self._reported if oldest is None else self._reported.changed(oldest)

    @property
    def oldest_change(self) -> float | None:
        """The time (of `clock`) of the oldest change that is not programmed in each family; None: no change waits."""
        waiting = (self._queue.oldest, self._reported.waiting_since)
        return min((at for at in waiting if at is not None), default=None)

    def passed(self, report: PassReport) -> None:
        """Takes in the result of a pass."""
        succeeded = {family: family in report.programmed for family in report.families}
        before = self._reported if report.ok else self._reported.changed(report.started - report.waited_seconds)
        self._reported = before.passed(succeeded, started=report.started, finished=report.finished)

    def is_healthy(self) -> bool:
        """Returns whether no family is late; the Node object does not count."""
        return self.state.is_healthy(self._clock(), self.timeout_seconds)
