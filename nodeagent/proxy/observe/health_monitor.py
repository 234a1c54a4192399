"""Keeps the health state up to date."""

from collections.abc import Callable, Iterable
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.reports import PassReport
from nodeagent.proxy.observe.health import HealthState


class Queue(Protocol):
    """Where changes wait for a pass."""

    @property
    def oldest(self) -> float | None:
        """When the oldest change came that no pass has taken."""
        ...

    def service_changed(self, key: ObjectKey) -> None: ...
    def node_changed(self) -> None: ...
    def service_cidrs_changed(self) -> None: ...
    def synced(self) -> None: ...
    def all_listed(self) -> None: ...


class HealthMonitor:
    """Stands between the store and the change queue, so that it knows of a change even while a pass hangs over it.

    timeout_seconds: how long a change may wait. clock: the one of the passes.
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
        self._state = HealthState.before_any_pass(families)
        self.timeout_seconds = timeout_seconds
        self._clock = clock

    @property
    def state(self) -> HealthState:
        """How far each family is."""
        return self._state

    @property
    def oldest_change(self) -> float | None:
        """When the oldest change came that is not programmed in each family, as a time of `clock`; None: nothing waits.

        A change whose pass runs or failed is no longer in the queue; one before the first pass is only there.
        """
        waiting = (self._queue.oldest, self._state.waiting_since)
        return min((at for at in waiting if at is not None), default=None)

    def service_changed(self, key: ObjectKey) -> None:
        """A service, or a slice of it, changed."""
        self._queue.service_changed(key)
        self._note()

    def node_changed(self) -> None:
        """The Node object changed."""
        self._queue.node_changed()
        self._note()

    def service_cidrs_changed(self) -> None:
        """The service CIDRs changed."""
        self._queue.service_cidrs_changed()
        self._note()

    def synced(self) -> None:
        """The first full lists are there."""
        self._queue.synced()

    def all_listed(self) -> None:
        """The Node and the service CIDRs have been listed too."""
        self._queue.all_listed()

    def passed(self, report: PassReport) -> None:
        """Take in how a pass ended."""
        succeeded = {family: table.ok for family, table in report.families.items()}
        self._state = self._state.passed(
            succeeded, started=report.started, finished=report.finished, newer=self._queue.oldest
        )

    def is_healthy(self) -> bool:
        """Whether no family is late, whatever happens to the node."""
        return self._state.is_healthy(self._clock(), self.timeout_seconds)

    def _note(self) -> None:
        self._state = self._state.changed(self._clock())
