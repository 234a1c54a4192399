"""How many connections of strangers there may be, from how many files the process may have open."""

import pytest

from nodeagent.observe.admission import Room


def test_where_files_are_plenty_nobody_is_turned_away_for_their_sake() -> None:
    assert Room.within(1 << 19) == Room()


@pytest.mark.parametrize("files", [16, 40, 64, 256, 1024, 4096, 20_000])
def test_three_full_listeners_leave_more_than_half_of_the_files(files: int) -> None:
    room = Room.within(files)
    assert 3 * room.total < files / 2
    assert 1 <= room.source <= room.port <= room.total
