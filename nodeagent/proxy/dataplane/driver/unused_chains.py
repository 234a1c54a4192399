"""Finds chains of the program that no frontend leads to any more (pure).

A chain is removed if two looks in a row found it unused. So it stays while a Service scales up and down, and no packet
is on its way there: one that found the last element has passed the chain long ago.
"""

from dataclasses import dataclass
from typing import Final

from nodeagent.proxy.dataplane.driver.belief import Belief
from nodeagent.proxy.dataplane.image.image import classes_in, timeouts_in
from nodeagent.proxy.dataplane.program.classes import PickClass

LOOK_SECONDS: Final = 60.0
HURRY_SECONDS: Final = 1.0
MANY: Final = 64
"""If there are so many more classes and timeouts than at the last look, the next look is sooner: each makes a pass a little slower."""


@dataclass(frozen=True, slots=True)
class Unused:
    """Classes and affinity timeouts (seconds) whose chains may be removed."""

    classes: frozenset[PickClass] = frozenset()
    timeouts: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.classes or self.timeouts)


class UnusedChains:
    """Looks at the whole image, so only rarely."""

    def __init__(self) -> None:
        self._seen = Unused()
        self._last = float("-inf")
        self._left = 0

    def due(self, now: float, belief: Belief) -> bool:
        """Returns whether it is time to look."""
        many = _number(belief) > self._left + MANY
        return now >= self._last + (HURRY_SECONDS if many else LOOK_SECONDS)

    def look(self, now: float, belief: Belief) -> Unused:
        """Returns what was unused at the last look and still is."""
        unused = Unused(
            frozenset(belief.classes - classes_in(belief.image)), frozenset(belief.timeouts - timeouts_in(belief.image))
        )
        old = self._seen
        self._last, self._seen, self._left = now, unused, _number(belief)
        return Unused(unused.classes & old.classes, unused.timeouts & old.timeouts)


def _number(belief: Belief) -> int:
    return len(belief.classes) + len(belief.timeouts)
