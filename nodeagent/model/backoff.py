"""How long to wait after the n-th failure in a row."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential: `first_seconds`, twice that, four times that, … up to `longest_seconds`."""

    first_seconds: float = 0.1
    longest_seconds: float = 30.0

    def seconds(self, failures: int) -> float:
        """Returns how long to wait, in seconds, after this many failures in a row; `failures` counts from 1."""
        return min(self.longest_seconds, self.first_seconds * 2.0 ** min(failures - 1, 32))
