"""Finds chains of the program that nobody needs any more, and a spare one that does not exist (pure).

A chain is removed if two looks in a row found it unused. So it stays while a Service scales up and down, and no packet
is on its way there: one that found the last element has passed the chain long ago. A spare one is added if two looks missed it.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from nodeagent.proxy.dataplane.driver.belief import Belief
from nodeagent.proxy.dataplane.driver.spare_classes import classes_with_chains
from nodeagent.proxy.dataplane.image.image import timeouts_in
from nodeagent.proxy.dataplane.program.classes import PickClass

LOOK_SECONDS: Final = 60.0
HURRY_SECONDS: Final = 1.0
MANY: Final = 64
"""If there are so many more classes and timeouts than at the last look, the next look is sooner: each makes a pass a little slower."""
ADDED: Final = 1
"""The number of spare chains that are added at a look. Changes wait while the kernel walks a large map for one."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Classes and affinity timeouts (seconds) whose chains may be removed, and spare classes that have no chain."""

    unused: frozenset[PickClass] = frozenset()
    timeouts: frozenset[int] = frozenset()
    missing: frozenset[PickClass] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.unused or self.timeouts or self.missing)


class ChainUpkeep:
    """Looks at the whole image, so only rarely."""

    def __init__(self) -> None:
        self._seen = Upkeep()
        self._last = float("-inf")
        self._left = 0

    def due(self, now: float, belief: Belief) -> bool:
        """Returns whether it is time to look."""
        many = _number(belief) > self._left + MANY
        return now >= self._last + (HURRY_SECONDS if many else LOOK_SECONDS)

    def look(self, now: float, belief: Belief) -> Upkeep:
        """Returns what was unused or missing at the last look and still is; of the missing classes the next ones."""
        needed = classes_with_chains(belief.image)
        found = Upkeep(
            frozenset(belief.classes.difference(needed)),
            frozenset(belief.timeouts - timeouts_in(belief.image)),
            frozenset(needed).difference(belief.classes),
        )
        old = self._seen
        self._last, self._seen, self._left = now, found, _number(belief)
        first = islice((one for one in needed if one in found.missing & old.missing), ADDED)
        return Upkeep(found.unused & old.unused, found.timeouts & old.timeouts, frozenset(first))


def _number(belief: Belief) -> int:
    return len(belief.classes) + len(belief.timeouts)
