"""Calls all observers of a pass in one order; none of them can end the agent."""

from collections.abc import Callable, Iterable
from typing import Protocol

from nodeagent.model.reports import PassReport
from nodeagent.proxy.observe.observer_guard import ObserverGuard
from nodeagent.proxy.observe.problem_board import ProblemBoard, ProblemChanges
from nodeagent.proxy.observe.status_line import StatusLine


class PassListener(Protocol):
    """Receives the report of every pass. What it raises is logged once."""

    def passed(self, report: PassReport) -> None: ...


class StatusReader(Protocol):
    """Shows one line about the agent (systemd)."""

    def status(self, text: str) -> None: ...


class PassObservers:
    """The engine's observer. listeners: called first. ready: called with the status line after the first pass that
    programmed a family; from then on `reader` receives every change of that line. later: listeners called last: what they take at the
    first pass does not delay `ready`."""

    def __init__(
        self,
        listeners: Iterable[PassListener],
        board: ProblemBoard,
        status_line: StatusLine,
        reader: StatusReader,
        *,
        ready: Callable[[str], None],
        later: Iterable[PassListener] = (),
    ) -> None:
        self._listeners, self._later = tuple(listeners), tuple(later)
        self._board = board
        self._status_line = status_line
        self._reader = reader
        self._on_ready = ready
        self._guard = ObserverGuard()
        self._ready = False

    @property
    def ready(self) -> bool:
        """Whether a pass has programmed a family."""
        return self._ready

    def passed(self, report: PassReport) -> None:
        for listener in self._listeners:
            self._guard.call(listener.passed, report, report.changed)
        self._board.replace("sync", report.problems)
        status = self._status_line.after_pass(report, len(self._board.problems))
        if report.programmed and not self._ready:
            self._ready = True
            self._on_ready(status)
        else:
            self._reader.status(status)
        for listener in self._later:
            self._guard.call(listener.passed, report, report.changed)

    def problems_changed(self, changes: ProblemChanges) -> None:  # noqa: ARG002 - only their number matters
        """Called when problems appeared or disappeared, which needs no pass: a file that cannot be read changes no object."""
        if self._ready:
            self._reader.status(self._status_line.counted(len(self._board.problems)))
