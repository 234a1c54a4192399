"""How many Events a user may write."""

import pytest

from nodeagent.apiserver.api.event_limits import UNIT_BYTES, EventRate


def test_a_burst_then_a_steady_rate() -> None:
    rate = EventRate(a_second=2.0, burst=3)
    assert [rate.take("node-a", 100, 10.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert rate.take("node-a", 100, 10.5) == 0.0
    assert rate.take("node-a", 100, 10.5) == pytest.approx(0.5)


def test_one_user_takes_nothing_from_another() -> None:
    rate = EventRate(a_second=1.0, burst=1)
    assert [rate.take(user, 1, 0.0) for user in ("node-a", "node-a", "node-b")] == [0.0, 1.0, 0.0]


def test_large_events_count_by_their_size() -> None:
    rate = EventRate(a_second=1.0, burst=10)
    assert rate.take("node-a", 4 * UNIT_BYTES + 1, 0.0) == 0.0
    assert rate.take("node-a", 6 * UNIT_BYTES, 0.0) == 1.0
    assert rate.take("node-a", 1_000 * UNIT_BYTES, 100.0) == 0.0
    assert rate.take("node-a", 1, 100.0) == 1.0


def test_users_who_rested_are_forgotten() -> None:
    rate = EventRate(a_second=1.0, burst=10)
    for number in range(5_000):
        rate.take(f"node-{number}", 1, float(number))
    assert len(rate._buckets) < 1_100
