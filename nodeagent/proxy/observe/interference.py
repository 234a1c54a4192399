"""Notices another program that changes what is ours again and again; each time it is repaired, and connections may fail until then."""

from collections import deque
from collections.abc import Callable, Iterable

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport
from nodeagent.proxy.observe.pass_log import CallLater

TIMES = 4
WITHIN_SECONDS = 10.0


class Interference:
    """A listener of passes. report: receives all present problems. later: `loop.call_later`."""

    def __init__(self, report: Callable[[Iterable[Problem]], None], later: CallLater) -> None:
        self._report = report
        self._later = later
        self._found: dict[str, deque[float]] = {}
        self._waits = False

    def passed(self, report: PassReport) -> None:
        for what in report.disturbed:
            self._found.setdefault(what, deque(maxlen=TIMES)).append(report.finished)
        if self._found:
            self._judge(report.finished)

    def _judge(self, now: float) -> None:
        """Reports what was changed too often within the last seconds, and looks again while there is something to forget."""
        for what, times in list(self._found.items()):
            while times and times[0] < now - WITHIN_SECONDS:
                times.popleft()
            if not times:
                del self._found[what]
        self._report(tuple(_problem(what) for what, times in sorted(self._found.items()) if len(times) == TIMES))
        if self._found and not self._waits:
            self._waits = True
            self._later(WITHIN_SECONDS / 3, lambda: self._look(now + WITHIN_SECONDS / 3))

    def _look(self, now: float) -> None:
        self._waits = False
        self._judge(now)


def _problem(what: str) -> Problem:
    subject = "service interface" if what == "interface" else f"table nodeagent ({Family(what).value})"
    detail = (
        "another program changes it again and again, and each repair may cost connections: a second agent, another proxy, or a "
        "firewall that reloads; find it: nft monitor, and stop it"
    )
    return Problem(subject, "Interfered", detail)
