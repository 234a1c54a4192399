"""When the agent is healthy: families, changes that wait, passes that succeed or fail. Timeout 60 s, times explicit."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.addresses import Family
from nodeagent.proxy.observe.health import HealthState

TIMEOUT = 60.0
BOTH = (Family.IPV4, Family.IPV6)
Step = Callable[[HealthState], HealthState]


def changed(at: float) -> Step:
    return lambda state: state.changed(at)


def passed(at: float, *, failed: tuple[Family, ...] = (), started: float | None = None) -> Step:
    """A pass over both families that ends at `at`."""
    succeeded = {family: family not in failed for family in BOTH}
    began = at if started is None else started
    return lambda state: state.passed(succeeded, started=began, finished=at)


def after(*steps: Step) -> HealthState:
    state = HealthState.before_any_pass(BOTH)
    for step in steps:
        state = step(state)
    return state


@pytest.mark.parametrize(
    ("steps", "now", "healthy"),
    [
        pytest.param([], 1000, True, id="nothing ever happened"),
        pytest.param([changed(0)], 1000, True, id="before the first pass changes may wait for their lists"),
        pytest.param([passed(10)], 100_000, True, id="idle is healthy"),
        pytest.param([passed(10), changed(20)], 79.9, True, id="a change waits for less than the timeout"),
        pytest.param([passed(10), changed(20)], 80, False, id="a change waits for the timeout"),
        pytest.param([passed(10), changed(20), changed(75)], 80, False, id="the oldest change counts"),
        pytest.param([passed(10), changed(20), passed(70)], 200, True, id="a pass took it in"),
        pytest.param([passed(10), changed(20), passed(90)], 90, True, id="a late pass heals"),
        pytest.param(
            [passed(10), changed(20), passed(30), changed(25)], 84, True, id="what came during a pass: not late"
        ),
        pytest.param(
            [passed(10), changed(20), passed(30), changed(25)], 85, False, id="what came during a pass: late"
        ),
        pytest.param([passed(10), changed(20), passed(21, failed=BOTH)], 79, True, id="failing, not late"),
        pytest.param([passed(10), changed(20), passed(21, failed=BOTH)], 80, False, id="failing counts from the change"),
        pytest.param(
            [passed(10), changed(20), *[passed(at, failed=BOTH) for at in range(21, 80)]],
            80,
            False,
            id="failing often does not start the time again",
        ),
        pytest.param(
            [passed(10), passed(100, started=99, failed=BOTH)], 159, False, id="a failed comparison waits although nothing changed"
        ),
        pytest.param([changed(0), passed(50, started=49, failed=BOTH)], 108, True, id="first pass failed, not late"),
        pytest.param([changed(0), passed(50, started=49, failed=BOTH)], 109, False, id="first pass failed long ago"),
        pytest.param([passed(10), changed(20), passed(21, failed=(Family.IPV6,))], 80, False, id="one family is enough"),
        pytest.param(
            [passed(10), changed(20), passed(21, failed=(Family.IPV6,)), passed(81)], 81, True, id="the family recovers"
        ),
    ],
)  # fmt: skip
def test_health_is_whether_something_waits_too_long(steps: list[Step], now: float, healthy: bool) -> None:
    assert after(*steps).is_healthy(now, TIMEOUT) is healthy


def test_a_failing_family_leaves_the_other_as_it_is() -> None:
    state = after(passed(10), changed(20), passed(21, failed=(Family.IPV4,)), passed(70, failed=(Family.IPV4,)))
    assert state.families[Family.IPV4].updated == 10
    assert state.families[Family.IPV4].is_late(80, TIMEOUT)
    assert state.families[Family.IPV6].updated == 70
    assert not state.families[Family.IPV6].is_late(80, TIMEOUT)


def test_a_family_counts_as_programmed_from_its_first_success() -> None:
    state = after(passed(10, failed=(Family.IPV6,)))
    assert state.families[Family.IPV4].updated is not None
    assert state.families[Family.IPV6].updated is None


def test_a_change_that_changes_nothing_is_the_same_state() -> None:
    """Changes come a hundred thousand at a time; only the first of them costs anything."""
    waiting = after(passed(10), changed(20))
    assert waiting.changed(21) is waiting


moments = st.lists(
    st.tuples(st.sampled_from(["change", "success", "failure"]), st.floats(0, 100)), max_size=30
)  # fmt: skip


@given(moments)
def test_a_success_that_leaves_nothing_behind_is_always_healthy(steps: list[tuple[str, float]]) -> None:
    now = 0.0
    state = HealthState.before_any_pass(BOTH)
    for kind, gap in steps:
        now += gap
        failed = BOTH if kind == "failure" else ()
        state = state.changed(now) if kind == "change" else passed(now, failed=failed)(state)
        if kind == "success":
            assert state.is_healthy(now + 1e9, TIMEOUT)


@given(moments)
def test_health_only_gets_worse_while_nothing_happens(steps: list[tuple[str, float]]) -> None:
    now = 0.0
    state = HealthState.before_any_pass(BOTH)
    for kind, gap in steps:
        now += gap
        failed = BOTH if kind == "failure" else ()
        state = state.changed(now) if kind == "change" else passed(now, failed=failed)(state)
    verdicts = [state.is_healthy(now + wait, TIMEOUT) for wait in range(0, 300, 10)]
    assert verdicts == sorted(verdicts, reverse=True)
