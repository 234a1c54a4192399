"""Changes that follow each other closely share passes; a change alone waits for nobody."""

import pytest

from nodeagent.model.spacing import BURST, LONG_SPACING_SECONDS, Spacing


def delays(*, changes_a_second: float, seconds: float, pass_seconds: float = 0.001) -> tuple[list[float], int]:
    """Returns how long each change waited until its pass began, and how many passes there were."""
    spacing, now, passes, waited = Spacing(), 100.0, 0, []
    arrivals = [100.0 + number / changes_a_second for number in range(int(changes_a_second * seconds))]
    while arrivals:
        now = max(now, arrivals[0])
        now += spacing.wait_seconds(now)
        taken = [at for at in arrivals if at <= now]
        arrivals = arrivals[len(taken) :]
        waited += [now - at for at in taken]
        spacing.take(now)
        passes += 1
        now += pass_seconds
    return waited, passes


@pytest.mark.parametrize("changes_a_second", [1, 20, 99])
def test_changes_that_come_slowly_wait_for_nobody(changes_a_second: int) -> None:
    waited, passes = delays(changes_a_second=changes_a_second, seconds=10)
    assert max(waited) < 1e-9
    assert passes == len(waited)


@pytest.mark.parametrize("changes_a_second", [400, 2000])
def test_changes_that_come_fast_share_passes_and_wait_for_one_at_most(changes_a_second: int) -> None:
    waited, passes = delays(changes_a_second=changes_a_second, seconds=10)
    assert max(waited) <= LONG_SPACING_SECONDS + 0.001
    assert passes <= BURST / (1 - 100 / changes_a_second) + 10 / LONG_SPACING_SECONDS + 1


def test_the_first_changes_of_many_are_programmed_at_once() -> None:
    waited, _ = delays(changes_a_second=400, seconds=BURST / 400)
    assert max(waited) < 1e-9


def test_after_a_quiet_time_all_passes_are_granted_again_and_no_more() -> None:
    spacing = Spacing()
    for now in (0.0, 1000.0):
        for _ in range(BURST):
            assert spacing.wait_seconds(now) < 1e-9
            spacing.take(now)
        assert spacing.wait_seconds(now) == pytest.approx(LONG_SPACING_SECONDS)


def test_passes_that_never_ran_out_of_grants_are_as_close_as_they_were() -> None:
    _, passes = delays(changes_a_second=140, seconds=0.4)
    assert passes == 56
