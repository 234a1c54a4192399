"""The shortest list of steps that still fails: delta debugging (Zeller and Hildebrandt, 2002). Pure but for the trials."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(steps: Sequence[T], fails: Callable[[Sequence[T]], bool], may_go_on: Callable[[], bool]) -> list[T]:
    """Returns a list that fails, of which no part can be left out as long as there was time to try. `steps` must fail.
    fails: carries out a list, says whether it fails. may_go_on: whether there is time for another trial."""
    left, parts = list(steps), 2
    while len(left) >= 2 and may_go_on():
        for candidate in _candidates(left, parts):
            if not may_go_on():
                return left
            if candidate and fails(candidate):
                parts = 2 if len(candidate) <= len(left) // parts + 1 else max(parts - 1, 2)
                left = candidate
                break
        else:
            if parts >= len(left):
                return left
            parts = min(len(left), 2 * parts)
    return left


def _candidates(steps: list[T], parts: int) -> list[list[T]]:
    """Returns each part alone, then all but each part."""
    edges = [round(number * len(steps) / parts) for number in range(parts + 1)]
    places = list(itertools.pairwise(edges))
    alone = [steps[start:end] for start, end in places]
    without = [steps[:start] + steps[end:] for start, end in places] if parts > 2 else []
    return alone + without
