"""The file of a saved state: replaced as a whole, or not at all."""

import errno
from pathlib import Path

import pytest

from nodeagent.proxy.source.saved.state_file import read_state, write_state
from tests.harness.small_disk import fill, on_small_disk


def test_a_written_file_is_read_back_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "below" / "state"
    assert read_state(path) is None
    for content in (b"first", b"second"):
        write_state(path, content)
        assert read_state(path) == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["state"]


def test_a_temporary_file_of_a_crash_does_no_harm(tmp_path: Path) -> None:
    path, beside = tmp_path / "state", tmp_path / ".state.new"
    write_state(path, b"old")
    beside.write_bytes(b"half of the n")
    assert read_state(path) == b"old"
    write_state(path, b"new")
    assert read_state(path) == b"new"


def test_a_link_beside_the_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    (tmp_path / ".state.new").symlink_to(precious)
    write_state(tmp_path / "state", b"new")
    assert precious.read_bytes() == b"mine"


@pytest.mark.kernel
def test_on_a_full_disk_the_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state"

    def write_twice() -> tuple[OSError, bytes | None, list[str]]:
        write_state(path, b"old")
        fill(tmp_path)
        with pytest.raises(OSError) as failed:
            write_state(path, bytes(1 << 20))
        return failed.value, read_state(path), sorted(one.name for one in tmp_path.iterdir())

    error, content, names = on_small_disk(tmp_path, 1, write_twice)
    assert error.errno == errno.ENOSPC
    assert content == b"old"
    assert names == ["filler", "state"]
