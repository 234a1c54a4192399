"""What docs/comparison.md says of other programs has a source in each cell, or says that none was found."""

import re

from tests.harness.source_tree import ROOT

TEXT = (ROOT / "docs" / "comparison.md").read_text()
SOURCES = dict(re.findall(r"^\[([\w-]+)\]: (https://\S+)$", TEXT, re.MULTILINE))
CITED = re.compile(r"\[[^\]]+\]\[([\w-]+)\]")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("|")]


def without_a_source(cell: str) -> bool:
    return not CITED.search(cell) and cell not in ("not stated", "does not apply")


def test_every_cell_about_another_program_has_a_source() -> None:
    heads, _, *rows = ROWS
    assert len(rows) >= 10
    found = [f"{row[0]}, {heads[at]}" for row in rows for at in range(2, len(heads)) if without_a_source(row[at])]
    assert found == []


def test_every_source_exists_and_is_cited() -> None:
    assert set(CITED.findall(TEXT)) == set(SOURCES)


def test_a_cell_without_a_source_would_be_found() -> None:
    assert without_a_source("yes")
    assert not without_a_source("[yes][vip]")
