"""When the DNS process has hung, and when it only had no chance to answer. Times are values here."""

import pytest

from nodeagent.names.feed.heartbeat import INTERVAL_SECONDS, PATIENCE_SECONDS, SilenceTimer

LOOKS = round(PATIENCE_SECONDS / INTERVAL_SECONDS)


def looks(elapsed: float, waited: float, most: int = 1000) -> tuple[int | None, int | None]:
    """After how many unanswered looks of this kind the process is late, and after how many it counts as hung; None for
    never."""
    patience = SilenceTimer()
    late = None
    for count in range(1, most):
        patience.record(answered=False, elapsed=elapsed, waited=waited)
        if late is None and patience.is_late:
            late = count
        if patience.has_hung:
            return late, count
    return late, None


@pytest.mark.parametrize(
    ("elapsed", "waited", "hung"),
    [
        pytest.param(INTERVAL_SECONDS, 0.0, LOOKS, id="stopped, or in an endless loop on a machine with room"),
        pytest.param(INTERVAL_SECONDS, INTERVAL_SECONDS, None, id="the process gets no processor"),
        pytest.param(INTERVAL_SECONDS, 0.4 * INTERVAL_SECONDS, 8, id="it gets three fifths of one"),
        pytest.param(3600.0, 0.0, LOOKS, id="the agent, or the machine, was stopped between looks"),
        pytest.param(3600.0, 3600.0, None, id="nothing runs on this machine"),
    ],
)
def test_only_time_in_which_the_process_could_answer_counts(elapsed: float, waited: float, hung: int | None) -> None:
    assert looks(elapsed, waited) == (LOOKS, hung)


def test_a_single_answer_is_enough() -> None:
    patience = SilenceTimer()
    for _ in range(100):
        for _ in range(LOOKS - 1):
            patience.record(answered=False, elapsed=INTERVAL_SECONDS, waited=0.0)
            assert not patience.is_late
        patience.record(answered=True, elapsed=INTERVAL_SECONDS, waited=0.0)


def test_who_answers_again_is_no_longer_late() -> None:
    patience = SilenceTimer()
    for _ in range(LOOKS):
        patience.record(answered=False, elapsed=INTERVAL_SECONDS, waited=INTERVAL_SECONDS)
    assert (patience.is_late, patience.has_hung) == (True, False)
    patience.record(answered=True, elapsed=INTERVAL_SECONDS, waited=0.0)
    assert not patience.is_late
