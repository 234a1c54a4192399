"""Files that say where names are answered: whose they are, and when they are nobody's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.names.feed import places_file


class Held:
    """Files that agents hold, as open files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: list[int] = []

    def hold(self, number: int, *places: str) -> Path:
        path = self.directory / f"dns-{number}.listen"
        descriptor = places_file.hold(path, places)
        assert descriptor is not None
        self._open.append(descriptor)
        path.with_suffix(".sock").touch()
        return path

    def die(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path / "run")
    yield held
    held.die()


def test_two_share_a_file_and_the_last_one_wrote_it(held: Held) -> None:
    path = held.hold(1, "169.254.20.10:53", "[fd00::10]:53")
    assert places_file.read(path) == ["169.254.20.10:53", "[fd00::10]:53"]
    held.hold(1, "10.96.0.10:53")
    assert places_file.read(path) == ["10.96.0.10:53"]


def test_a_file_says_nothing_when_nobody_holds_it(held: Held) -> None:
    path = held.hold(1, "169.254.20.10:53")
    held.die()
    assert path.exists()
    assert places_file.read(path) == []
    with pytest.raises(FileNotFoundError):
        places_file.read(held.directory / "dns-2.listen")


def test_only_what_nobody_holds_is_swept_with_its_socket(held: Held) -> None:
    dead, own = held.hold(1, "10.96.0.10:53"), held.hold(2, "10.96.0.10:53")
    held.die()
    alive = held.hold(3, "10.96.0.10:53")
    assert places_file.sweep(own) == [dead]
    kept = [path for one in (own, alive) for path in (one, one.with_suffix(".sock"))]
    assert sorted(held.directory.iterdir()) == sorted(kept)
    assert places_file.read(alive) == ["10.96.0.10:53"]


def test_the_socket_of_a_version_that_locked_nothing_is_left_alone(held: Held) -> None:
    own = held.hold(1, "10.96.0.10:53")
    dead, unknown = (held.directory / f"dns-{number}.listen" for number in (2, 3))
    for file in (dead, unknown, unknown.with_suffix(".sock")):
        file.write_text("10.96.0.10:53\n")
    assert places_file.sweep(own) == [dead]
    assert unknown.with_suffix(".sock").exists()


def test_a_file_that_was_swept_under_us_is_made_again(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    path = held.hold(1, "10.96.0.10:53")
    held.die()
    own = held.directory / "dns-2.listen"
    opened = os.open

    def sweep_then_hand_out(*arguments: object) -> int:
        descriptor: int = opened(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(os, "open", opened)
        assert places_file.sweep(own) == [path]
        return descriptor

    monkeypatch.setattr(os, "open", sweep_then_hand_out)
    held.hold(1, "10.96.0.11:53")
    assert places_file.read(path) == ["10.96.0.11:53"]


def test_where_no_file_can_be_nobody_is_kept_from_answering(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert places_file.hold(tmp_path / "file" / "dns-1.listen", ["10.96.0.10:53"]) is None


def test_a_file_is_removed_with_its_socket_when_nobody_holds_it(held: Held) -> None:
    path = held.hold(1, "10.96.0.10:53")
    assert not places_file.remove(path)
    assert path.exists()
    held.die()
    assert places_file.remove(path)
    assert list(held.directory.iterdir()) == []
    assert places_file.remove(path)
