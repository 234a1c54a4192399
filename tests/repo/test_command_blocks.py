"""Every block of commands in the documents can be pasted, and a test runs it, or it says that none does, and why."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.documented_commands import ROOT, blocks, documents

PROGRAMS = "nodeagent|kubectl|make|apt|apt-get|systemctl|sudo|nft|ip|unshare|vagrant|pipx?|pytest|helm|gpg|curl|install|python|etcdctl|ctr|export"
OUTSIDE = re.compile(rf"^ {{4}}(?:[$#] \S|[\w@]+:~\$ |(?:\w+=\S+ )*(?:\.venv/bin/)?(?:{PROGRAMS}) \S)")
"""An indented line that looks like something to type: a prompt, or a program."""
SPELLING = re.compile(r"^ {4}(?:kubectl )?nodeagent .*(?:[\[|]|\b[A-Z]{3,})")
"""How a command is spelled, with its options: nobody types that."""
EVERY = pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))


def typed_outside(text: str) -> Iterator[str]:
    """The first lines of indented blocks that hold commands, but not how they are spelled."""
    for block in re.findall(
        r"(?:^|\n\n)((?: {4}.*\n)+)", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    ):
        lines = block.splitlines()
        if OUTSIDE.match(lines[0]) and not any(map(SPELLING.match, lines)):
            yield lines[0]


@EVERY
def test_a_test_runs_every_block_or_the_document_says_that_none_does(document: Path) -> None:
    name = str(document.relative_to(ROOT))
    for block in blocks(document.read_text()):
        place = f"{name}:{block.line}"
        assert block.mark is not None, f"{place}: say which test runs it, or that none does, and why (CONTRIBUTING.md)"
        if test := block.mark["test"]:
            assert f'"{name}"' in (ROOT / test).read_text(), f"{place}: {test} does not read it"


@EVERY
def test_every_block_can_be_pasted(document: Path) -> None:
    for block in blocks(document.read_text()):
        checked = subprocess.run(["bash", "-n"], input=block.commands, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, f"{document.name}:{block.line}: {checked.stderr}"
        assert not re.search(rf"^(?:\$ |# (?:{PROGRAMS}) )", block.commands, re.MULTILINE), f"{block.line}: a prompt"
        assert "unshare -n bash\n" not in block.commands or block.commands.count("\n") == 1, (
            f"{block.line}: what follows would wait for the end of that shell"
        )


@EVERY
def test_commands_are_in_such_blocks(document: Path) -> None:
    assert list(typed_outside(document.read_text())) == []


def test_an_unmarked_block_and_one_with_prompts_would_be_found() -> None:
    mark = "*No test runs the commands below as they are: they need a cluster.*"
    text = f"# A\n\n```bash\nnodeagent show\n```\n\n    NAME\n\n{mark}\n\n```bash\nkubectl get nodes\n```\n\n    $ nodeagent show\n"
    assert [(block.line, block.shown, block.mark is not None) for block in blocks(text)] == [
        (3, ("NAME",), False),
        (11, ("$ nodeagent show",), True),
    ]
    assert list(typed_outside(text)) == ["    $ nodeagent show"]


def test_some_are_run() -> None:
    run = [block for path in documents() for block in blocks(path.read_text()) if block.mark and block.mark["test"]]
    assert len(run) >= 40
