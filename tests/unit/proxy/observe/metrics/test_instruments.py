"""Histograms count like Prometheus's: bounds are inclusive, buckets cumulative."""

import pytest

from nodeagent.runtime.figures.instruments import Histogram, counter, exponential, linear
from tests.unit.proxy.observe.metrics.conftest import Reader


@pytest.mark.parametrize(("value", "buckets"), [(0.5, [1, 1, 1]), (1.0, [1, 1, 1]), (1.5, [0, 1, 1]), (9.0, [0, 0, 1])])
def test_a_value_is_in_every_bucket_that_it_is_not_above(value: float, buckets: list[int], reader: Reader) -> None:
    histogram = Histogram("some_seconds", "Some", (1.0, 2.0), ("of",))
    histogram.observe(value, "x")
    found = reader.instruments([histogram])
    assert [found[reader.key("some_seconds_bucket", of="x", le=le)] for le in ("1", "2", "+Inf")] == buckets
    assert found[reader.key("some_seconds_sum", of="x")] == value


def test_bounds_are_spelled_as_go_does(reader: Reader) -> None:
    histogram = Histogram("some_seconds", "Some", (0.001, 0.016, 16.384, 60.0))
    histogram.observe(0.0)
    bounds = [dict(labels)["le"] for name, labels in reader.instruments([histogram]) if name.endswith("_bucket")]
    assert bounds == ["0.001", "0.016", "16.384", "60", "+Inf"]


def test_labels_may_hold_anything(reader: Reader) -> None:
    hostile = 'a"\n\\b} 5'
    some = counter("some_total", "Some", "of")
    some.add(hostile)
    some.add(hostile, by=2)
    assert reader.instruments([some])[reader.key("some_total", of=hostile)] == 3


def test_rows_of_bounds() -> None:
    assert exponential(1, 2, 4) == (1, 2, 4, 8)
    assert linear(1, 2, 3) == (1, 3, 5)
