"""docs/upgrading.md has a note for every schema of the tables, and for every option that is not as it was in the last release."""

import re
from pathlib import Path

from nodeagent import __version__
from nodeagent.config.keys import KEYS, Key
from nodeagent.proxy.dataplane.program.schema import SCHEMA

ROOT = Path(__file__).parents[2]
NOTES = (ROOT / "docs" / "upgrading.md").read_text()
LAST_RELEASE = Path(__file__).with_name("options_of_the_last_release.txt")
"""A release replaces it: pytest -q tests/repo/test_upgrading.py says how."""


def described(key: Key) -> str:
    """An option as it is kept: whatever a user would notice, on one line."""
    return f"{key.path} {key.environment_variable} {key.form.name} {key.unit} {key.default!r}"


def options(lines: list[str]) -> dict[str, str]:
    return {line.split(maxsplit=1)[0]: line for line in lines}


NOW = options([described(key) for key in KEYS.values()])


def changed(before: dict[str, str], now: dict[str, str]) -> set[str]:
    """The options that are new, gone or different."""
    return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def unnoted(paths: set[str], notes: str) -> set[str]:
    """Of these options those that the notes of what is not released do not name."""
    section = notes.partition("\n## Unreleased\n")[2].partition("\n## ")[0].partition("\n### Options\n")[2]
    named = set(re.findall(r"`(\w+\.\w+)`", section.partition("\n### ")[0]))
    return paths - named


def test_every_changed_option_has_a_note() -> None:
    before = options(LAST_RELEASE.read_text().splitlines())
    missing = unnoted(changed(before, NOW), NOTES)
    hint = (
        f"name them in docs/upgrading.md; in a release write the {len(NOW)} lines of `described` to {LAST_RELEASE.name}"
    )
    assert missing == set(), hint


def test_a_change_without_a_note_would_be_found() -> None:
    before = options(["a.gone A TEXT path None", "a.kept A TEXT path None", "a.other A TEXT path None"])
    now = options(["a.kept A TEXT path None", "a.other A TEXT path 'x'", "a.new A TEXT path None"])
    notes = "x\n## Unreleased\n\n### Options\n\n`a.new` is new.\n\n### Schema\n\n`a.gone`\n\n## 1\n"
    assert unnoted(changed(before, now), notes) == {"a.gone", "a.other"}


def test_the_format_of_the_saved_state_is_named() -> None:
    source = (ROOT / "nodeagent/proxy/source/saved/saved_bytes.py").read_text()
    (number,) = re.findall(r'^_FORMAT = b"(\d+)"$', source, re.MULTILINE)
    assert f"| saved state (`source.snapshot`), format {number} |" in NOTES


def test_every_schema_has_a_note() -> None:
    """Numbers without a gap, up to the schema that this tree programs."""
    table = NOTES.partition("## Schemas of the tables")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|", table, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, SCHEMA + 1))
    assert all(text.strip() for _, _, text in rows)
    assert rows[-1][1].strip() == __version__
    assert f"The tables have schema {SCHEMA}." in NOTES
