"""docs/tutorial.md, as somebody types it: a shell in a namespace of its own, one command after the other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.typed_commands import BEGIN, END, Shell, Step, follow, steps

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    started = Shell(tmp_path)
    yield started
    started.end()


def test_its_commands_do_what_it_says(shell: Shell) -> None:
    typed = steps(TUTORIAL.read_text())
    assert typed[0].command == BEGIN
    assert typed[-1].command.endswith(END)
    assert sum(bool(step.shown) for step in typed) >= 10
    follow(shell, [*typed[1:-1], Step(typed[-1].command.removesuffix(END))])
    assert "nodeagent" not in shell.run("nft list tables; ip -br link")


def test_what_is_not_printed_is_missed() -> None:
    step = Step("x", ["healthy: …", "…0:2…"])
    assert step.as_shown("first\nhealthy: 1 of 1\nthen 0:2 so\n")
    assert not step.as_shown("then 0:2 so\nhealthy: 1 of 1\n")
    assert not step.as_shown("healthy: 1 of 1\n")
