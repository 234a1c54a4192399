"""The pause after long work, so that it costs a bounded part of a core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

REST = 100
"""The pause is this many times as long as the work, so that it costs at most 1 % of a core."""


class WalkRest:
    """Measures how long work takes, and says when the pause after it is over.

    clock: returns seconds. credit_seconds: unused pause that is saved up, so that several looks may follow each other."""

    def __init__(self, clock: Callable[[], float], credit_seconds: float = 0.0) -> None:
        self._clock = clock
        self._credit_seconds = credit_seconds
        self._until = float("-inf")

    @property
    def over(self) -> bool:
        """Whether the work may be done again."""
        return self._clock() >= self._until

    @contextmanager
    def after(self) -> Iterator[None]:
        """Measures the work done inside; the pause begins at its end."""
        begun = self._clock()
        try:
            yield
        finally:
            self.spend(self._clock() - begun)

    def spend(self, seconds: float) -> None:
        """Counts work that took this long and has just ended."""
        self._until = max(self._until, self._clock() - self._credit_seconds) + REST * seconds
