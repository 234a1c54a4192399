"""User data: what is packed is read back, and what is cut short does no harm."""

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.wire.netlink.nf_tables.user_data import comment_in, pack_comment, pack_user_data, read_user_data

ENTRIES = st.dictionaries(st.integers(min_value=0, max_value=255), st.binary(max_size=255), max_size=4)


@given(ENTRIES)
def test_entries_are_read_as_packed(entries: dict[int, bytes]) -> None:
    assert read_user_data(memoryview(pack_user_data(*entries.items()))) == entries


@given(ENTRIES, st.integers(min_value=0, max_value=1100))
def test_truncated_user_data_is_read_as_far_as_possible(entries: dict[int, bytes], length: int) -> None:
    found = read_user_data(pack_user_data(*entries.items())[:length])

    assert all(entries[kind].startswith(value) for kind, value in found.items())


def test_a_comment_is_found_by_its_type() -> None:
    data = pack_user_data((1, b"xx")) + pack_comment(7, b"web")

    assert (comment_in(data, 7), comment_in(data, 0), comment_in(b"", 7)) == ("web", "", "")
