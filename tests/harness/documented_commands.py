"""The blocks of commands in the documents: what they print, and which test runs them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "GOVERNANCE.md", "tests/README.md", "docs")
ANY = "…"
MARK = re.compile(
    r"^\*(?:A test runs the commands below: `(?P<test>\S+)`|No test runs the commands below as they are: .{10,})\.\*$"
)


@dataclass(frozen=True, slots=True)
class Block:
    """What a reader copies at once."""

    line: int
    """Where it begins in the document."""
    commands: str
    shown: tuple[str, ...]
    """The lines that are printed, as the document shows them after the block; `…` stands for any text."""
    mark: re.Match[str] | None
    """The last sentence before it that says whether a test runs it."""


def documents() -> list[Path]:
    """All of them but those that a program wrote."""
    found = [path for place in PLACES for path in ((ROOT / place), *sorted((ROOT / place).rglob("*.md")))]
    return [path for path in found if path.is_file() and not path.read_text().startswith("<!-- Written")]


def blocks(text: str) -> list[Block]:
    """Every block of a document that is marked as `bash`."""
    found: list[Block] = []
    mark: re.Match[str] | None = None
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        mark = MARK.match(lines[number]) or mark
        number += 1
        if lines[number - 1].lstrip() != "```bash":
            continue
        begin, indent = number, lines[number - 1].index("`")
        while lines[number].lstrip() != "```":
            number += 1
        commands = "".join(f"{line[indent:]}\n" for line in lines[begin:number])
        number += 1
        after = number
        while after < len(lines) and (lines[after].startswith("    ") or not lines[after].strip()):
            after += 1
        shown = tuple(line.strip() for line in lines[number:after] if line.strip())
        found.append(Block(begin, commands, shown, mark))
    return found


def run_by(test: str, document: str) -> list[Block]:
    """The blocks of a document that this test says it runs, all of which it has to run; both are paths in the tree."""
    found = [block for block in blocks((ROOT / document).read_text()) if block.mark and block.mark["test"] == test]
    assert found, f"{document} names {test} nowhere"
    return found


def not_shown(wanted: list[str], printed: str) -> str:
    """The first of these lines that was not printed after those before it; empty if all were, whatever else was."""
    lines = iter(printed.splitlines())
    return next((line for line in wanted if not any(matches(line, one) for one in lines)), "")


def matches(wanted: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, wanted.split(ANY))), line.strip()) is not None
