"""Values and their positions on paper. Pure."""

import math
from collections.abc import Iterator

from msgspec import Struct

STEPS = (1.0, 2.0, 5.0)
MOST_TICKS = 10


class Linear(Struct, frozen=True):
    """From `least` to `most`, drawn from `start` to `end`."""

    least: float
    most: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Returns the position of a value; outside the range, that of the nearer end."""
        return self.start + self.share(min(max(value, self.least), self.most)) * (self.end - self.start)

    def share(self, held: float) -> float:
        """Returns the position of a value between `least` and `most`, from 0 to 1."""
        return (held - self.least) / (self.most - self.least)

    def ticks(self) -> list[float]:
        """Returns round values in the range, at most ten or so."""
        step = next(one for one in _round_steps() if (self.most - self.least) / one <= MOST_TICKS)
        return [number * step for number in range(math.ceil(self.least / step), math.floor(self.most / step) + 1)]


class Decades(Linear, frozen=True):
    """A logarithmic axis for values above 0."""

    def share(self, held: float) -> float:
        """Returns the same of the logarithms."""
        return math.log(held / self.least) / math.log(self.most / self.least)

    def ticks(self) -> list[float]:
        """Returns the powers of ten in the range."""
        first, last = math.ceil(math.log10(self.least) - 1e-9), math.floor(math.log10(self.most) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]


def _round_steps() -> Iterator[float]:
    """Yields 0.001, 0.002, 0.005, 0.01, … without end."""
    power = -3
    while True:
        yield from (step * 10.0**power for step in STEPS)
        power += 1
