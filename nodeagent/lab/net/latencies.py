"""Latencies as counts: the number of answers by microseconds, to two digits. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping


def to_two_digits(seconds: float) -> int:
    """Returns microseconds, rounded down to two digits: 87, 1200, 34000."""
    whole = int(seconds * 1e6)
    step = 1
    while whole >= 100 * step:
        step *= 10
    return whole // step * step


def merged(counts: Iterable[Mapping[int, int]]) -> Counter[int]:
    """Returns the sum of all counts."""
    total: Counter[int] = Counter()
    for each in counts:
        total.update(each)
    return total


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Returns the seconds within which `share` (0 to 1) of the answers arrived, to two digits; None without answers."""
    wanted = share * sum(counts.values())
    seen = 0
    for microseconds in sorted(counts):
        seen += counts[microseconds]
        if seen >= wanted:
            return microseconds / 1e6
    return None
