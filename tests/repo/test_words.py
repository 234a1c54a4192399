"""The words of docs/glossary.md hold everywhere: in docstrings, comments, messages and documents, and in names."""

import ast
import io
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.source_tree import ROOT, statements

GLOSSARY = ROOT / "docs" / "glossary.md"
PLACES = (
    "nodeagent",
    "docs",
    "tests",
    "deploy",
    "systemd",
    "vagrant",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "Makefile",
)
WITHOUT_WORDS = frozenset({".png", ".svg", ".pcap", ".bin", ".gz"})
NOT_READ = frozenset({GLOSSARY, Path(__file__)})

RIDDLES = frozenset(
    {"Arrivals", "Fed", "Rounds", "Taken", "Told", "Trouble", "Way", "anothers", "is_anothers", "heard", "kept", "told"}
)
"""Names of classes and functions that say nothing to a reader who searches."""

SAME_NAME = {
    "a word of Kubernetes, of DNS or of the kernel, in parts that never import each other": """
    Client Endpoint Event Health Heartbeat Member Node NodeState NodeStatus Pod PodIP PodSpec
    PodStatus Record Request Resource Route Server ServiceState ServiceStatus Store Table Transaction Upstream
    WatchEvent Worker
    """,
    "the usual word for this in its package, whose name a reader sees beside it": """
    Column Flag Form Journal Layout Lookup Ping Put Replies Reply Report Settings Status Stream
    Supervisor TokenFile Watch
    """,
    "names that are too general; each is renamed when its package is edited, and none is added": """
    Access Account Change End Failed Failure Finding Group Interrupted Located Outcome OwnTable Ownership
    Program Random Reason Sets Step Timing Unreadable World
    """,
}
"""Names that more than one class has, by the reason."""

REASONED = frozenset(name for names in SAME_NAME.values() for name in names.split())


def rows(heading: str) -> list[tuple[str, str]]:
    """The rows of the table below a heading of the glossary."""
    section = GLOSSARY.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    return [(first, second) for first, second in cells[2:]]


def pattern_of(phrases: list[str]) -> re.Pattern[str]:
    """`none` counts in lower case only: `is None` is Python. `is none of` is English."""
    spelled = [rf"(?:[{one[0]}{one[0].upper()}]{re.escape(one[1:])})" for one in phrases]
    return re.compile(rf"(?<![\w-])(?:{'|'.join(spelled)})(?![\w-])(?! of)")


def words_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that people read, with their numbers: of Python, comments and strings without what is computed in them."""
    text = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.STRING):
            continue
        computed = token.type == tokenize.STRING and "f" in token.string[:2].lower()
        shown = re.sub(r"\{[^{}]*\}", "{}", token.string) if computed else token.string
        yield from enumerate(shown.splitlines(), token.start[0])


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *PLACES], cwd=ROOT, check=True, capture_output=True, text=True)
    found = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in found if path.suffix not in WITHOUT_WORDS and path not in NOT_READ and path.is_file()]


def test_no_text_uses_the_words_that_the_glossary_refuses() -> None:
    unwanted = pattern_of([first for first, _ in rows("Words that we do not use")])
    found = []
    for path in files():
        try:
            lines = list(words_of(path)) if unwanted.search(path.read_text()) else []
        except UnicodeDecodeError:  # a picture, a capture
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for number, line in lines if unwanted.search(line)
        ]
    assert not found, "docs/glossary.md says what to write instead:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param('"""What it was told."""', True, id="docstring"),
        pytest.param("x = 1  # whoever asks", True, id="comment"),
        pytest.param('f"it is {told}"', False, id="computed"),
        pytest.param('"the value is None"', False, id="Python's None"),
        pytest.param('"is none of ours"', False, id="none of"),
        pytest.param("told = 1", False, id="not a sentence"),
    ],
)
def test_the_dialect_is_recognised(line: str, expected: bool, tmp_path: Path) -> None:
    unwanted = pattern_of([first for first, _ in rows("Words that we do not use")])
    (tmp_path / "a.py").write_text(line + "\n")
    assert any(unwanted.search(one) for _, one in words_of(tmp_path / "a.py")) is expected


def test_the_glossary_has_each_term_once_and_in_order() -> None:
    terms = [term for term, _ in rows("Terms")]
    assert len(terms) > 40
    assert terms == sorted(set(terms), key=str.lower)


class Definition(NamedTuple):
    """A class or a function."""

    path: Path
    name: str
    is_class: bool


@cache
def definitions(tree: str) -> list[Definition]:
    """Wherever in a module they stand; read once for all rules."""
    return [
        Definition(path, node.name, isinstance(node, ast.ClassDef))
        for path in sorted((ROOT / tree).rglob("*.py"))
        for node in statements(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_no_name_is_a_riddle() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for tree in ("nodeagent", "tests")
        for path, name, _ in definitions(tree)
        if name in RIDDLES
    ]
    assert not found


def test_names_of_functions_are_plain_english() -> None:
    """A name of several words is read as a sentence. `test_what_is_…` has no subject: the name says what the test is about."""
    unwanted = pattern_of([first for first, _ in rows("Words that we do not use")])
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for tree in ("nodeagent", "tests")
        for path, name, _ in definitions(tree)
        if unwanted.search(name.replace("_", " ")) or name.startswith("test_what_")
    ]
    assert not found


def test_a_name_of_a_class_is_there_once_or_has_a_reason() -> None:
    places = defaultdict(list)
    for path, name, is_class in definitions("nodeagent"):
        if is_class and not name.startswith("_"):
            places[name].append(str(path.relative_to(ROOT)))
    several = {name: found for name, found in places.items() if len(found) > 1}
    without = {name: found for name, found in several.items() if name not in REASONED}
    assert not without, f"choose another name, or give a reason in SAME_NAME: {without}"
    assert not REASONED - several.keys(), "these names are there once now"
