"""Finds out what other programs change again and again, however often it is repaired."""

from collections import defaultdict, deque
from collections.abc import Callable

from nodeagent.model.problem import Problem
from nodeagent.model.reports import DriftReport
from nodeagent.proxy.observe.dataplane_listeners import DataplaneListener

TIMES = 3
WITHIN_SECONDS = 3600.0
_SUBJECTS = {"interface": "service interface", "sysctl": "sysctls"}
_CURES = {"interface": "ip monitor link address route", "sysctl": "grep -r NAME /etc/sysctl.d /usr/lib/sysctl.d"}
_CURE_OF_TABLES = "nft monitor, or a service that reloads a firewall"


class RepeatedDrift(DataplaneListener):
    """Listens to drift. clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=TIMES))

    def drift_found(self, report: DriftReport) -> None:
        self._found[report.object, report.kind].append(self._clock())

    def problems(self) -> tuple[Problem, ...]:
        """Returns a problem for what drifted TIMES times within an hour."""
        since = self._clock() - WITHIN_SECONDS
        repeated = [one for one, times in self._found.items() if len(times) == TIMES and times[0] >= since]
        return tuple(
            Problem(
                _SUBJECTS.get(what, f"table nodeagent ({what})"),
                "ChangedRepeatedly",
                f"{kind}: another program changed it {TIMES} times or more within an hour; each change was repaired, and the log says"
                f" what it was; to find the program: {_CURES.get(what, _CURE_OF_TABLES)}",
            )
            for what, kind in sorted(repeated)
        )
