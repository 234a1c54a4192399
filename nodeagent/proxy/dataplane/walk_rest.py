"""The pause after work that takes long, so that it costs a bounded part of a core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

REST = 100
"""The pause is so many times as long as the work took, so that it costs 1 % of a core at most."""


class WalkRest:
    """clock: in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = float("-inf")

    @property
    def over(self) -> bool:
        """Whether the work may be done again."""
        return self._clock() >= self._until

    @contextmanager
    def after(self) -> Iterator[None]:
        """Around the work."""
        begun = self._clock()
        try:
            yield
        finally:
            ended = self._clock()
            self._until = ended + REST * (ended - begun)
