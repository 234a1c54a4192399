"""Every block of commands in the documents is run by a test, or says that it is not, and why.

A comment says it for the blocks that follow, up to the next one: `<!-- run by tests/… -->` or `<!-- not run: … -->`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md")]
DOCUMENTS = [
    path
    for path in [*PAPERS, *sorted((ROOT / "docs").rglob("*.md"))]
    if not path.read_text().startswith("<!-- Written")
]
"""Without what a program wrote."""
PROGRAMS = "nodeagent|kubectl|make|apt|apt-get|systemctl|sudo|nft|vagrant|pipx?|helm|gpg|curl|install|python|etcdctl"
COMMAND = re.compile(rf"^    (?:[$#] \S|(?:\.venv/bin/)?(?:{PROGRAMS}) )")
MARK = re.compile(r"^<!-- (?:run by (?P<test>\S+)|not run: (?P<why>.{10,})) -->$")
TABLE_OF_OPTIONS = re.compile(r"^    nodeagent .*[\[|]")
"""How a command is spelled, with its options: nobody types that."""


def blocks(text: str) -> Iterator[tuple[int, re.Match[str] | None]]:
    """The number of the first line of each block of commands, and the mark that holds for it."""
    mark: re.Match[str] | None = None
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        mark = MARK.match(line) or mark
        if line.startswith("    ") and not inside and COMMAND.match(line) and not TABLE_OF_OPTIONS.match(line):
            inside = True
            yield number, mark
        inside = inside and (line.startswith("    ") or not line.strip())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_commands_is_run_or_says_that_it_is_not(document: Path) -> None:
    for number, mark in blocks(document.read_text()):
        assert mark is not None, f"{document.name}:{number}: say which test runs it, or that none does, and why"
        if test := mark["test"]:
            assert document.name in (ROOT / test).read_text(), f"{document.name}:{number}: {test} does not read it"


def test_an_unmarked_block_would_be_found() -> None:
    text = "# A\n\n    $ nodeagent show\n\n<!-- not run: it needs a cluster -->\n\n    kubectl get nodes\n    NAME\n"
    assert [(number, mark is not None) for number, mark in blocks(text)] == [(3, False), (7, True)]


def test_some_are_run() -> None:
    run = {mark["test"] for path in DOCUMENTS for _, mark in blocks(path.read_text()) if mark and mark["test"]}
    assert len(run) >= 3
