"""Decides when a pass waits for another process that reads the ruleset.

Each commit interrupts every reader of the ruleset, and nft then starts again. While commits follow each other closely, no process could
read a big ruleset to its end. A single commit waits for no reader: the one that it interrupts starts again, undisturbed.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

Sockets = Mapping[int, bool]
"""Sockets of other processes, by inode, with whether they are in the middle of a dump."""

CHURN_SECONDS: Final = 1.0
"""Commits that are this close to each other may keep a reader from its end."""
LONGEST_SECONDS: Final = 1.3
"""Enough for two attempts, of which the previous commit interrupted the first: nft reads the ruleset of 2,000 Services with
10 endpoints in 0.1 to 0.3 s."""
APART_SECONDS: Final = 2.0
"""From the end of one wait to the next: an endless reader takes less than half of the time."""
TOO_SHORT_WAITS: Final = 4
LONG_SECONDS: Final = 4.0
LONG_APART_SECONDS: Final = 300.0
"""After this many waits that were too short, one wait is long; so rarely that less than one change in a hundred waits more than 1.5 s."""
LOOK_SECONDS: Final = 0.02
SEARCH_SECONDS: Final = 0.25
"""After a look that found no reader, the next look is not sooner. A reader that comes meanwhile starts again a few times more."""


class ReaderWindow:
    """Delays a commit while others read the ruleset. sockets: returns the present sockets. A reader closes its socket when it has
    read everything; between two dumps it parses what it read."""

    def __init__(self, sockets: Callable[[], Sockets]) -> None:
        self._sockets = sockets
        self._churn_until = self._next = self._next_long = 0.0
        self._too_short = 0

    def committed(self) -> None:
        """Called when a commit changed the ruleset."""
        self._churn_until = _now() + CHURN_SECONDS

    async def wait(self) -> None:
        """Waits until the present readers have ended, at most for as long as readers are granted."""
        began = _now()
        if began >= self._churn_until or began < self._next:
            return
        readers = {name for name, dumping in self._sockets().items() if dumping}
        if not readers:
            self._next = began + SEARCH_SECONDS
            return
        end = began + self._longest_wait(began)
        while readers and _now() < end:
            await asyncio.sleep(LOOK_SECONDS)
            readers &= self._sockets().keys()
        self._too_short = self._too_short + 1 if readers else 0
        self._next = _now() + APART_SECONDS

    def _longest_wait(self, now: float) -> float:
        if self._too_short < TOO_SHORT_WAITS or now < self._next_long:
            return LONGEST_SECONDS
        self._next_long = now + LONG_APART_SECONDS
        return LONG_SECONDS


def _now() -> float:
    return asyncio.get_running_loop().time()
