"""How many connections of strangers there may be, from how many files the process may have open."""

import pytest

from nodeagent.runtime.serving.admission import ConnectionLimits


def test_where_files_are_plenty_nobody_is_turned_away_for_their_sake() -> None:
    limits = ConnectionLimits.without_credentials(1 << 19)
    assert (limits.strangers_per_address, limits.strangers, limits.total) == (64, 512, 4096)


@pytest.mark.parametrize("files", [16, 40, 64, 256, 1024, 4096, 20_000])
def test_three_full_listeners_leave_more_than_half_of_the_files(files: int) -> None:
    limits = ConnectionLimits.without_credentials(files)
    assert 3 * limits.total < files / 2
    assert 1 <= limits.strangers_per_address <= limits.strangers <= limits.total
