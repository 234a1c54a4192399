"""What other programs change again and again becomes a problem, and goes when they have stopped for an hour."""

from nodeagent.model.reports import DriftReport
from nodeagent.proxy.observe.repeated_drift import TIMES, WITHIN_SECONDS, RepeatedDrift


def test_a_third_time_within_an_hour_is_a_problem_until_the_hour_is_over() -> None:
    now = 0.0
    repeated = RepeatedDrift(lambda: now)
    for turn in range(TIMES):
        assert repeated.problems() == ()
        now = 100.0 * turn
        repeated.drift_found(DriftReport("IPv4", "rules", f"chain {turn}"))
    [problem] = repeated.problems()
    assert (problem.subject, problem.reason) == ("table nodeagent (IPv4)", "ChangedRepeatedly")
    assert problem.detail.startswith("rules: ")
    assert "nft monitor" in problem.detail

    repeated.drift_found(DriftReport("IPv4", "rules", "chain 9"))
    assert repeated.problems() == (problem,), "nothing new to say"
    now += WITHIN_SECONDS
    assert repeated.problems() == ()


def test_changes_of_different_things_do_not_add_up() -> None:
    repeated = RepeatedDrift(lambda: 0.0)
    for what, kind in (("IPv4", "rules"), ("IPv4", "elements"), ("IPv6", "rules"), ("interface", "link")):
        for _ in range(TIMES - 1):
            repeated.drift_found(DriftReport(what, kind, ""))
    assert repeated.problems() == ()
    repeated.drift_found(DriftReport("interface", "link", ""))
    assert [problem.subject for problem in repeated.problems()] == ["service interface"]


def test_changes_over_many_hours_are_no_repetition() -> None:
    now = 0.0
    repeated = RepeatedDrift(lambda: now)
    for _ in range(10):
        now += WITHIN_SECONDS / 2 + 1
        repeated.drift_found(DriftReport("sysctl", "value", ""))
        assert repeated.problems() == ()
