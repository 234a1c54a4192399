"""Connections a second, from counters."""

import pytest

from nodeagent.diagnosis.explain.rates import KEPT, Rate, RateTracker, sparkline


def test_the_first_look_tells_nothing() -> None:
    assert RateTracker().update({("a", b"1"): 500}, 10.0) == ()


def test_a_rate_is_the_difference_divided_by_the_time() -> None:
    rates = RateTracker()
    rates.update({("a", b"1"): 100, ("a", b"2"): 50, ("b", b"1"): 7}, 10.0)
    found = {one.service: one for one in rates.update({("a", b"1"): 110, ("a", b"2"): 60, ("b", b"1"): 7}, 14.0)}
    assert found == {"a": Rate("a", 5.0, 170, (5.0,)), "b": Rate("b", 0.0, 7, (0.0,))}


def test_a_recreated_counter_counts_from_zero() -> None:
    rates = RateTracker()
    rates.update({("a", b"1"): 1000}, 0.0)
    assert rates.update({("a", b"1"): 6}, 2.0) == (Rate("a", 3.0, 6, (3.0,)),)


def test_services_come_and_go() -> None:
    rates = RateTracker()
    rates.update({("a", b"1"): 1}, 0.0)
    assert rates.update({("b", b"1"): 4}, 2.0) == (Rate("b", 2.0, 4, (2.0,)),)
    assert rates.update({("a", b"1"): 2}, 4.0) == (Rate("a", 1.0, 2, (1.0,)),)


def test_so_many_intervals_are_kept() -> None:
    rates = RateTracker()
    for second in range(KEPT + 10):
        found = rates.update({("a", b"1"): second * second}, float(second))
    assert len(found[0].recent) == KEPT
    assert found[0].recent[-1] == found[0].per_second


@pytest.mark.parametrize(("values", "bars"), [((), ""), ((0.0, 0.0), "▁▁"), ((0.0, 5.0, 10.0), "▁▅█"), ((3.0,), "█")])
def test_bars_are_as_high_as_values(values: tuple[float, ...], bars: str) -> None:
    assert sparkline(values) == bars
