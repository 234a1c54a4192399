"""How long to wait after the n-th failure in a row."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """first, 2·first, 4·first, … up to longest, in seconds."""

    first: float = 0.1
    longest: float = 30.0

    def delay(self, failures: int) -> float:
        """Seconds to wait; `failures` counts from 1."""
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
