"""docs/tutorial.md, as somebody types it: a shell in a namespace of its own, one command after the other."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"
PATIENCE = 60.0
ANY = "…"
BEGIN, END = "unshare -n bash", "exit"
REPEATABLE = ("curl ", "nodeagent explain", "nodeagent trace", "nodeagent diff", "nodeagent show", "nft list")
"""What only looks: whatever it looks at may take a moment."""


@dataclass
class Step:
    """A command, and what it prints; lines of that may be left out before, between and after these."""

    command: str
    shown: list[str] = field(default_factory=list)

    def as_shown(self, printed: str) -> bool:
        """Whether these lines are there, in order."""
        lines = iter(printed.splitlines())
        return all(any(matches(wanted, line) for line in lines) for wanted in self.shown)


def matches(wanted: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, wanted.split(ANY))), line.strip()) is not None


def steps() -> list[Step]:
    """All commands of the document that a shell is given, in order."""
    found: list[Step] = []
    here = ""
    for line in TUTORIAL.read_text().splitlines():
        if not line.startswith("    "):
            continue
        text = line[4:]
        if here:
            found[-1].command += f"\n{text}"
            here = "" if text == here else here
        elif text.startswith("# "):
            found.append(Step(text[2:]))
            here = text.partition("<<")[2]
        else:
            found[-1].shown.append(text.strip())
    return found


class Shell:
    """bash that reads commands from a pipe, with job control as at a terminal."""

    def __init__(self, directory: Path) -> None:
        """directory: where it begins, and makes its temporary files."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["unshare", "-n", "bash", "-m"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=directory,
            env={**os.environ, "PATH": path, "TMPDIR": str(directory)},
        )

    def run(self, command: str) -> str:
        """What it prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\necho; echo @done@\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line == "@done@\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"{command}: the shell ended: {''.join(lines)}")

    def end(self) -> None:
        """With whatever it has begun."""
        assert self._process.stdin is not None
        self.run("kill -9 $(jobs -p) 2> /dev/null; wait")
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            assert self._process.stdout is not None
            self._process.stdout.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    started = Shell(tmp_path)
    yield started
    started.end()


def test_its_commands_do_what_it_says(shell: Shell) -> None:
    typed = steps()
    assert typed[0].command == BEGIN
    assert typed[-1].command.endswith(END)
    assert sum(bool(step.shown) for step in typed) >= 10
    for step in [*typed[1:-1], Step(typed[-1].command.removesuffix(END))]:
        deadline = time.monotonic() + PATIENCE
        while not step.as_shown(printed := shell.run(step.command)):
            assert step.command.startswith(REPEATABLE), f"{step.command}: {printed}"
            assert time.monotonic() < deadline, f"{step.command}: {printed}"
            time.sleep(0.2)
    assert "nodeagent" not in shell.run("nft list tables; ip -br link")


def test_what_is_not_printed_is_missed() -> None:
    step = Step("x", ["healthy: …", "…0:2…"])
    assert step.as_shown("first\nhealthy: 1 of 1\nthen 0:2 so\n")
    assert not step.as_shown("then 0:2 so\nhealthy: 1 of 1\n")
    assert not step.as_shown("healthy: 1 of 1\n")
