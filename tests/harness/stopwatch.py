"""How long something takes, without the time in which others had the processor, and how long it may.

Not all that a busy machine takes can be left out: the kernel's own threads wait for a processor too, writes wait for the disk, and a
client that found nobody for longer waits longer until it looks again. So tests ask for what is promised only in `make times`.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from tests.harness.effort import PUNCTUAL
from tests.harness.worlds.process import AgentProcess

LENIENCE: Final = 1.0 if PUNCTUAL else 20.0
PATIENCE_SECONDS: Final = 60.0
"""Until something that is sure to come is given up."""


def allowed(seconds: float) -> float:
    """How many seconds a test allows what is promised within so many. Twenty times as many still tell a push from a poll."""
    return seconds * LENIENCE


def waited_for_processor(pids: Iterable[int]) -> float:
    """Seconds that the threads of these processes could have run and did not; of a process that has ended, none.

    The kernel counts them in nanoseconds, as the second figure of schedstat (Documentation/scheduler/sched-stats.rst).
    """
    return sum(map(_nanoseconds, pids)) / 1e9


def _nanoseconds(pid: int) -> int:
    """Of one of them, read without pathlib: clients ask for it before each packet that they send."""
    tasks, waited = f"/proc/{pid}/task", 0
    with suppress(OSError):
        for thread in os.listdir(tasks):
            with suppress(OSError):
                file = os.open(f"{tasks}/{thread}/schedstat", os.O_RDONLY)
                try:
                    waited += int(os.read(file, 100).split()[1])
                finally:
                    os.close(file)
    return waited


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


class Change:
    """Something was changed just now; `shows` waits for an effect and says when it came too late.

    That it takes longer because others had the processor does not count: `involved` are the processes it takes.
    """

    def __init__(self, agent: AgentProcess, involved: Iterable[int]) -> None:
        self._agent = agent
        self._watch = Stopwatch(involved)

    def shows(self, condition: Callable[[], bool], what: str, *, within: float = 1.0) -> None:
        """Return when the condition holds. Raises LabError when it never does, AssertionError when it is late; `within` is
        what is promised, a second for most things where a tenth is usual."""
        self._agent.wait_until(condition, what, seconds=max(PATIENCE_SECONDS, allowed(within)))
        seconds = self._watch.seconds
        assert seconds < allowed(within), f"{what} took {seconds:.2f} s"


def once_within(bound: float, attempt: Callable[[], float], what: str, tries: int | None = None) -> None:
    """Return when what an attempt measured is less than `bound`. Raises AssertionError when it never is for a minute, or in so many tries.

    For what is quick always or never: other work on the machine makes it late once, but not each time.
    """
    ends, found = time.monotonic() + PATIENCE_SECONDS, [attempt()]
    while found[-1] >= bound:
        if time.monotonic() > ends or len(found) == tries:
            raise AssertionError(f"{what}: never less than {bound}, at best {min(found):.2f} in {len(found)} attempts")
        found.append(attempt())
