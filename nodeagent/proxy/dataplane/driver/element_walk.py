"""Decides what of a table to compare next with the kernel, so that all is compared in good time (pure)."""

from collections.abc import Iterable, Iterator
from itertools import islice
from math import ceil
from typing import NamedTuple

from nodeagent.proxy.dataplane.image.image import Elements, ReadableImage

AUDIT_SECONDS = 240.0
"""From the beginning of one round to that of the next, while no other process changes the ruleset."""
WALK_SECONDS = 55.0
"""For all elements after another process changed the ruleset, if that needs at most MOST_KEYS at a time."""
FEWEST_KEYS = 64
MOST_KEYS = 1000
"""They take 4 ms."""


class Slice(NamedTuple):
    """What to compare next. elements: by set, as believed. outline: everything that is no element of these sets."""

    elements: dict[str, Elements]
    outline: bool = False


class ElementWalk:
    """Walks over a table in rounds, a slice at a time: its outline first, then the elements of the sets `names`.

    A round begins AUDIT_SECONDS after the one before and takes most of that time. One that begins because another process changed
    something has no outline, which was compared then, and is faster. Elements that are written while their set is walked are compared
    in the next round.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._again = False
        self._begun: float | None = None
        self._seconds = WALK_SECONDS
        self._sets: list[str] = []
        self._name = ""
        self._keys: Iterator[bytes] = iter(())
        self._last: float | None = None

    def restart(self) -> None:
        """Hurries, and starts a new round after the present one, because another process changed something."""
        self._again = True
        self._seconds = WALK_SECONDS

    def take(self, image: ReadableImage, now: float) -> Slice:
        """Returns the next slice of what is believed; an empty one if nothing is left to compare in this round. now: seconds."""
        if self._begun is None:
            self._begun = now
        total = sum(len(image[name]) for name in self._names)
        elapsed = 0.0 if self._last is None else now - self._last
        left = min(MOST_KEYS, max(FEWEST_KEYS, ceil(total * elapsed / self._seconds)))
        self._last = now
        taken: dict[str, Elements] = {}
        while left > 0:
            held = image.get(self._name, {})
            keys = tuple(islice(self._keys, left))
            if keys:
                taken[self._name] = taken.get(self._name, {}) | {key: held[key] for key in keys if key in held}
                left -= len(keys)
            elif self._sets:
                self._name = self._sets.pop()
                self._keys = iter(tuple(image[self._name]))
            elif self._again or now >= self._begun + AUDIT_SECONDS:
                outline = not self._again
                self._begin_round(now)
                if outline:
                    return Slice(_without_empty(taken), outline=True)
            else:
                self._last = None
                break
        return Slice(_without_empty(taken))

    def _begin_round(self, now: float) -> None:
        self._seconds = WALK_SECONDS if self._again else AUDIT_SECONDS * 0.8
        self._again, self._sets = False, list(self._names)
        self._begun = now


def _without_empty(taken: dict[str, Elements]) -> dict[str, Elements]:
    return {name: elements for name, elements in taken.items() if elements}
