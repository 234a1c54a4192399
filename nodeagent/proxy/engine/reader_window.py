"""When a pass waits for another process that reads the ruleset.

Each commit spoils every reading of the ruleset that goes on, and nft then starts again from the beginning. So while commits come one
soon after the other, nobody would ever read a big ruleset to its end. A commit that comes alone waits for nobody: the reader that
it interrupts begins again, undisturbed.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

Sockets = Mapping[str, bool]
"""Sockets of other processes: whether they are in the middle of a dump."""

CHURN_SECONDS: Final = 1.0
"""Commits that are this close to each other may keep a reader from its end."""
LONGEST_SECONDS: Final = 1.3
"""Enough for two attempts, of which the commit just before has spoiled the first: of 2,000 Services with 10 endpoints nft
reads the ruleset in 0.1 to 0.3 s."""
APART_SECONDS: Final = 2.0
"""From the end of one wait to the next: a reader without an end takes less than half of the time."""
IN_VAIN: Final = 4
LONG_SECONDS: Final = 4.0
LONG_APART_SECONDS: Final = 300.0
"""After so many waits that were too short there is a long one, so rarely that not one change in a hundred waits longer than 1.5 s."""
LOOK_SECONDS: Final = 0.02


class ReaderWindow:
    """sockets: as they are now. A reader closes its socket when it has what it wanted; between two dumps it takes apart what it read."""

    def __init__(self, sockets: Callable[[], Sockets]) -> None:
        self._sockets = sockets
        self._churn_until = self._next = self._next_long = 0.0
        self._in_vain = 0

    def committed(self) -> None:
        """The ruleset is another from now on."""
        self._churn_until = _now() + CHURN_SECONDS

    async def wait(self) -> None:
        """Until those who read now have ended, or for as long as readers are granted."""
        began = _now()
        if began >= self._churn_until or began < self._next:
            return
        readers = {name for name, dumping in self._sockets().items() if dumping}
        if not readers:
            return
        end = began + self._granted(began)
        while readers and _now() < end:
            await asyncio.sleep(LOOK_SECONDS)
            readers &= self._sockets().keys()
        self._in_vain = self._in_vain + 1 if readers else 0
        self._next = _now() + APART_SECONDS

    def _granted(self, now: float) -> float:
        if self._in_vain < IN_VAIN or now < self._next_long:
            return LONGEST_SECONDS
        self._next_long = now + LONG_APART_SECONDS
        return LONG_SECONDS


def _now() -> float:
    return asyncio.get_running_loop().time()
