"""Counters, gauges and histograms: plain values by the values of their labels (pure)."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf


class MetricType(Enum):
    """The type of a value for Prometheus: a counter only grows."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(slots=True)
class Figure:
    """A counter or gauge. name: as exposed, with the unit. labels: names, in the order of the keys of `values`."""

    kind: MetricType
    name: str
    help: str
    labels: tuple[str, ...] = ()
    values: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Adds `by` to the value of these labels."""
        self.values[labels] = self.values.get(labels, 0.0) + by

    def set(self, value: float, *labels: str) -> None:
        """Sets the value of these labels."""
        self.values[labels] = value


@dataclass(slots=True)
class Observations:
    """How many values fell into each bucket (the last one: above all bounds), and their sum."""

    counts: list[int]
    total: float = 0.0


class Histogram:
    """The distribution of values. bounds: upper ones, inclusive, ascending."""

    def __init__(self, name: str, help_text: str, bounds: Iterable[float], labels: tuple[str, ...] = ()) -> None:
        self.name = name
        self.help = help_text
        self.labels = labels
        self.bounds = tuple(bounds)
        self.values: dict[tuple[str, ...], Observations] = {}

    def observe(self, value: float, *labels: str) -> None:
        """Adds a value to its bucket."""
        seen = self.values.get(labels)
        if seen is None:
            self.begin(*labels)
            seen = self.values[labels]
        seen.counts[bisect_left(self.bounds, value)] += 1
        seen.total += value

    def begin(self, *labels: str) -> None:
        """Shows these labels from now on, even without a value: in Prometheus, a rate over a series that starts with its first value
        does not include that value."""
        if labels not in self.values:
            self.values[labels] = Observations([0] * (len(self.bounds) + 1))

    def cumulative(self, seen: Observations) -> list[tuple[float, int]]:
        """Returns (bound, how many values were not above it); the last one counts all values."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, inf), seen.counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


Instrument = Figure | Histogram


def copy_of(instrument: Instrument) -> Instrument:
    """Returns a copy with the present values, to be read while others count."""
    if isinstance(instrument, Figure):
        return replace(instrument, values=dict(instrument.values))
    copied = Histogram(instrument.name, instrument.help, instrument.bounds, instrument.labels)
    copied.values = {labels: Observations(list(seen.counts), seen.total) for labels, seen in instrument.values.items()}
    return copied


def counter(name: str, help_text: str, *labels: str) -> Figure:
    """Returns a counter without values."""
    return Figure(MetricType.COUNTER, name, help_text, labels)


def gauge(name: str, help_text: str, *labels: str, values: Mapping[tuple[str, ...], float] | None = None) -> Figure:
    """Returns a gauge with these values."""
    return Figure(MetricType.GAUGE, name, help_text, labels, dict(values or {}))


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Returns `count` bounds, each `factor` times the one before."""
    return tuple(first * factor**step for step in range(count))


def linear(first: float, step: float, count: int) -> tuple[float, ...]:
    """Returns `count` bounds at equal distances."""
    return tuple(first + step * index for index in range(count))
