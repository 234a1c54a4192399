"""Watches the conditions of the agent's own process: its event loop, its open files, its clock, and other agents beside it."""

import errno
import os
import resource
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from nodeagent.model.problem import Problem
from nodeagent.proxy.observe.admin.presence import SEE_THEM, Presence
from nodeagent.proxy.observe.metrics.loop_lag import PERIOD_SECONDS, watch_loop

SUBJECT = "agent"
LOOK_SECONDS = 3.0
LATE_SECONDS = 0.5
LATE_TIMES = 3
LAST_TIMES = 12
"""The loop counts as late if it was late LATE_TIMES times in the last LAST_TIMES looks. These take six seconds, or more while it is late."""
FILES_SHARE = 0.9
CLOCK_SECONDS = 60.0
"""Tokens and certificates are issued with about as much room."""


class AgentConditions:
    """Reports problems of the agent's own process.

    report: receives all problems, each time it has looked. late: receives twice a second how late the loop was, in seconds.
    ahead: how many seconds this clock is ahead of the API server's; None: not known."""

    def __init__(
        self,
        report: Callable[[Iterable[Problem]], None],
        *,
        late: Callable[[float], None],
        ahead: Callable[[], float | None],
    ) -> None:
        self._report = report
        self._late = late
        self._ahead = ahead
        self._lateness: deque[float] = deque(maxlen=LAST_TIMES)
        self._is_late = False
        self._until_look = 0.0
        self._others = 0

    async def run(self) -> None:
        """Watches until cancelled."""
        presence = Presence()
        try:
            await watch_loop(lambda seconds: self._woke(seconds, presence))
        finally:
            presence.close()

    def _woke(self, seconds: float, presence: Presence) -> None:
        self._late(seconds)
        self._lateness.append(seconds)
        late_times = sum(one > LATE_SECONDS for one in self._lateness)
        self._is_late = late_times >= LATE_TIMES or (self._is_late and late_times > 0)
        self._until_look -= PERIOD_SECONDS + seconds
        if self._until_look <= 0:
            self._until_look = LOOK_SECONDS
            files = tuple(_files())
            self._look_for_others(presence)
            self._report((*self._of_loop(), *files, *self._of_others(), *clock_problems(self._ahead())))

    def _look_for_others(self, presence: Presence) -> None:
        """Counts the looks in a row that saw another agent: during a handover there is one for a moment."""
        try:
            self._others = self._others + 1 if presence.others else 0
        except OSError:  # no file can be opened: the last count stays
            return

    def _of_loop(self) -> Iterator[Problem]:
        if self._is_late:
            detail = (
                f"its event loop was late by more than {LATE_SECONDS:g} s at least {LATE_TIMES} times: changes of Services wait, and "
                "commands too; give it more processor time (CPUWeight= of the unit, requests of the pod), or see what stops it"
            )
            yield Problem(SUBJECT, "LoopLate", detail)

    def _of_others(self) -> Iterator[Problem]:
        if self._others > 1:
            detail = (
                "another agent runs on this node: both program the same tables, and may undo what the other did; stop one of "
                f"them: {SEE_THEM}"
            )
            yield Problem(SUBJECT, "SecondAgent", detail)


def _files() -> Iterator[Problem]:
    """Yields a problem where few files can be opened any more. A new file has the lowest number that is free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    why = "it may open hardly another file (RLIMIT_NOFILE): raise LimitNOFILE= of the unit"
    try:
        lowest = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENFILE:
            why = "this machine may open no more files: raise sysctl fs.file-max"
        elif error.errno != errno.EMFILE:
            return
    else:
        os.close(lowest)
        if lowest < FILES_SHARE * limit:
            return
    detail = f"{why}; without one it answers no command, scrape or health check, and reads no change"
    yield Problem(SUBJECT, "FilesShort", detail)


def clock_problems(ahead_seconds: float | None) -> Iterator[Problem]:
    """Yields a problem if the clock of this node and the API server's differ by more than a minute. ahead_seconds: None if not known."""
    if ahead_seconds is not None and abs(ahead_seconds) > CLOCK_SECONDS:
        which = "ahead of" if ahead_seconds > 0 else "behind"
        detail = (
            f"it is more than {CLOCK_SECONDS:g} s {which} the API server's: certificates, tokens and leases are judged wrongly; "
            "set the one that is wrong: timedatectl, chronyc tracking"
        )
        yield Problem("clock of this node", "ClockSkew", detail)
