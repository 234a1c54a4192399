"""How long something takes, without the time in which others had the processor."""

import time
from collections.abc import Iterable
from pathlib import Path


def waited_for_processor(pids: Iterable[int]) -> float:
    """Seconds that the threads of these processes could have run and did not; of a process that has ended, none.

    The kernel counts them in nanoseconds, as the second figure of schedstat (Documentation/scheduler/sched-stats.rst).
    """
    waited = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                waited += int(path.read_text().split()[1])
            except OSError:
                continue
    return waited / 1e9


class Stopwatch:
    """Runs from when it is made, and stands still while one of the processes `pids` waits for a processor.

    Name those that take their turns one after the other: what two of them wait for at the same time is left out twice.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._waited = waited_for_processor(self._pids)
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began - self.stood

    @property
    def stood(self) -> float:
        """For how many seconds it has stood still."""
        return max(0.0, waited_for_processor(self._pids) - self._waited)
