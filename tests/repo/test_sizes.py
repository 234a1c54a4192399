"""Files stay small enough to read in one sitting."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 450
FILES = sorted(path for place in ("nodeagent", "tests") for path in (ROOT / place).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_not_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LIMIT


def test_median_source_file_is_short() -> None:
    lengths = sorted(len(path.read_text().splitlines()) for path in FILES if "tests" not in path.parts)
    assert lengths[len(lengths) // 2] <= 150


def test_names_say_what_things_are() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert not {path.stem for path in FILES} & vague
