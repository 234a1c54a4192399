"""Connections per second of each Service, from counters that are read repeatedly (pure)."""

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

KEPT = 30
_BARS = "▁▂▃▄▅▆▇█"


class Rate(Struct, frozen=True):
    """New connections of one service port. per_second: over the last interval. recent: earlier rates, the oldest first.
    total: connections counted so far."""

    service: str
    per_second: float
    total: int
    recent: tuple[float, ...]


class RateTracker:
    """Computes rates from consecutive readings of the counters by service port and address."""

    def __init__(self) -> None:
        self._before: Mapping[tuple[str, bytes], int] = {}
        self._at: float | None = None
        self._recent: dict[str, deque[float]] = {}

    def update(self, counters: Mapping[tuple[str, bytes], int], at: float) -> tuple[Rate, ...]:
        """Returns the rates since the previous call, unsorted; none at the first call. at: the clock, in seconds.

        A counter that is smaller than before was created again: all of its count is new.
        """
        seconds = None if self._at is None else max(at - self._at, 1e-9)
        came: dict[str, int] = {}
        total: dict[str, int] = {}
        for (service, place), count in counters.items():
            before = self._before.get((service, place), 0)
            came[service] = came.get(service, 0) + (count - before if count >= before else count)
            total[service] = total.get(service, 0) + count
        self._before, self._at = dict(counters), at
        if seconds is None:
            return ()
        self._recent = {service: self._recent.get(service, deque(maxlen=KEPT)) for service in total}
        for service, count in came.items():
            self._recent[service].append(count / seconds)
        return tuple(
            Rate(service, came[service] / seconds, total[service], tuple(self._recent[service])) for service in total
        )


def sparkline(values: Sequence[float]) -> str:
    """Returns one character for each value, scaled to the highest value."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(value / highest * (len(_BARS) - 1))] for value in values)
