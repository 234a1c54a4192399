"""Outputs of programs on a node, for a bundle: rules, routes, links, `nodeagent check`, the log."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Self

SECONDS = 60.0
LOG_LINES = 5000
LARGEST_BYTES = 16 << 20
"""Limit of the output under one name; a longer one is cut, with a note."""
_COMMANDS = {
    "links": ("ip", "-d", "-s", "link"),
    "addresses": ("ip", "address"),
    "interfaces": ("ip", "-json", "-details", "address"),
    "routes": ("ip", "-4", "route", "show", "table", "all"),
    "routes6": ("ip", "-6", "route", "show", "table", "all"),
    "routing-rules": ("ip", "rule"),
    "routing-rules6": ("ip", "-6", "rule"),
    "log": ("journalctl", "--unit", "nodeagent", "--lines", str(LOG_LINES), "--no-pager", "--output", "short-iso"),
}


class Programs:
    """Programs that run at the same time, with their outputs in memory. As a context manager it ends those that still run."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SECONDS
        self._running: dict[str, list[_Program]] = {}
        self._failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in (one for those in self._running.values() for one in those):
            program.end()

    def start(self, name: str, *commands: Sequence[str]) -> None:
        """Starts programs whose outputs, one after the other, go by one name."""
        try:
            for command in commands:
                self._running.setdefault(name, []).append(_Program(name, command))
        except OSError as error:
            self._failed[name] = str(error)

    def outputs(self) -> Iterator[tuple[str, bytes]]:
        """Yields (file name, output) by name; `NAME.error.txt` if a program cannot be run or takes too long."""
        for name, programs in self._running.items():
            try:
                text = b"".join([one.output(max(0.0, self._end - time.monotonic())) for one in programs])
            except subprocess.TimeoutExpired as error:
                self._failed[name] = str(error)
            else:
                if name not in self._failed:
                    cut = b"\n... cut off here\n" if len(text) > LARGEST_BYTES else b""
                    yield f"{name}.txt", text[:LARGEST_BYTES] + cut
        for name, why in self._failed.items():
            yield f"{name}.error.txt", why.encode()


class _Program:
    """A program that runs, and two files in memory for its output and its errors. Raises OSError if it cannot be run."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._files: list[IO[bytes]] = [os.fdopen(os.memfd_create(name), "w+b") for _ in range(2)]
        output, errors = self._files
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)  # noqa: S603
        except OSError:
            output.close()
            errors.close()
            raise

    def output(self, seconds: float) -> bytes:
        """Waits for its end, and returns its output, or its errors if the output is empty. Raises TimeoutExpired."""
        self._process.wait(seconds)
        found = b""
        for file in self._files:
            file.seek(0)
            found = found or file.read(LARGEST_BYTES + 1)
        return found

    def end(self) -> None:
        """Kills it if it still runs, and forgets its output."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for file in self._files:
            file.close()


def start_commands(programs: Programs, socket: Path | None) -> None:
    """Starts all programs but those that list rules. socket: the agent's, for `nodeagent check`; None: the default."""
    place = () if socket is None else ("--socket", str(socket))
    programs.start("check", (sys.executable, "-m", "nodeagent", "check", *place))
    for name, command in _COMMANDS.items():
        programs.start(name, command)
