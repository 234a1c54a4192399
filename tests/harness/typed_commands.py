"""What documents say that people type: their commands in order, and a shell that is given them, as at a terminal."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 60.0
ANY = "…"
BEGIN, END = "unshare -n bash", "exit"
"""Between these commands of a document the shell has a network namespace of its own."""
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


def steps(text: str) -> list[Step]:
    """All commands of a document that a shell is given, in order."""
    found: list[Step] = []
    here = ""
    for line in text.splitlines():
        if not line.startswith("    "):
            continue
        typed = line[4:]
        if here:
            found[-1].command += f"\n{typed}"
            here = "" if typed == here else here
        elif typed.startswith("# "):
            found.append(Step(typed[2:]))
            here = typed.partition("<<")[2]
        else:
            found[-1].shown.append(typed.strip())
    return found


class Shell:
    """bash that reads commands from a pipe, with job control as at a terminal."""

    def __init__(self, directory: Path) -> None:
        """directory: where it begins, and makes temporary files."""
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


def follow(shell: Shell, typed: list[Step]) -> None:
    """Types the commands, each of which prints what the document shows; what only looks may take a moment."""
    for step in typed:
        deadline = time.monotonic() + PATIENCE
        while not step.as_shown(printed := shell.run(step.command)):
            assert step.command.startswith(REPEATABLE), f"{step.command}: {printed}"
            assert time.monotonic() < deadline, f"{step.command}: {printed}"
            time.sleep(0.2)
