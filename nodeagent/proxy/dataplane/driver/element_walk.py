"""Decides which elements to compare next with the kernel, so that all are compared in good time (pure)."""

from collections.abc import Iterable, Iterator
from itertools import islice
from math import ceil

from nodeagent.proxy.dataplane.image.image import Elements, TableImage

WALK_SECONDS = 55.0
"""For all elements, if that needs at most MOST_KEYS at a time."""
FEWEST_KEYS = 64
MOST_KEYS = 1000


class ElementWalk:
    """Walks over the elements of some sets, a slice at a time; ends when all were compared after the last change.

    Elements that are written while their set is walked are compared in the next round.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._again = False
        self._sets: list[str] = []
        self._name = ""
        self._keys: Iterator[bytes] = iter(())
        self._last: float | None = None

    def restart(self) -> None:
        """Starts a new round after the present one, because another process changed something."""
        self._again = True

    def take(self, image: TableImage, now: float) -> dict[str, Elements]:
        """Returns the next slice of what is believed, by set; empty if nothing is left to compare. now: seconds."""
        total = sum(len(image[name]) for name in self._names)
        elapsed = 0.0 if self._last is None else now - self._last
        left = min(MOST_KEYS, max(FEWEST_KEYS, ceil(total * elapsed / WALK_SECONDS)))
        self._last = now
        taken: dict[str, Elements] = {}
        while left > 0:
            held = image.get(self._name, {})
            keys = tuple(islice(self._keys, left))
            if keys:
                taken[self._name] = taken.get(self._name, {}) | {key: held[key] for key in keys if key in held}
                left -= len(keys)
            elif not self._next_set(image):
                self._last = None
                break
        return {name: elements for name, elements in taken.items() if elements}

    def _next_set(self, image: TableImage) -> bool:
        """Goes to the next set; returns False after the last one."""
        if not self._sets:
            if not self._again:
                return False
            self._again, self._sets = False, list(self._names)
        self._name = self._sets.pop()
        self._keys = iter(tuple(image[self._name]))
        return True
