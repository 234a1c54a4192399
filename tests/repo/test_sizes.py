"""Files stay small enough to read in one sitting."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 450
MEDIAN = 150
FILES = sorted(path for place in ("nodeagent", "tests") for path in (ROOT / place).rglob("*.py"))


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_file_is_too_long() -> None:
    assert {str(path.relative_to(ROOT)): lines(path) for path in FILES if lines(path) > LIMIT} == {}


def test_median_source_file_is_short() -> None:
    lengths = sorted(lines(path) for path in FILES if ROOT / "nodeagent" in path.parents)
    assert lengths[len(lengths) // 2] <= MEDIAN


def test_names_say_what_things_are() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert not {path.stem for path in FILES} & vague


def test_the_architecture_states_these_sizes() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert f"At most {LIMIT} lines; the median source file at most {MEDIAN}." in text
