"""Outputs of programs on a node, for a bundle: rules, routes, links, `nodeagent check`, the log."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Protocol, Self

from nodeagent.cli.check import Begun, check_command

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


class _Running(Protocol):
    def wait(self, seconds: float) -> None:
        """Raises TimeoutExpired if it has not ended then."""

    def kill(self) -> None:
        """Kills it if it still runs, and waits for its end."""


Start = Callable[[IO[bytes], IO[bytes]], _Running]
"""Starts it with files for its output and its errors. Raises OSError if it cannot be run."""


class _Program:
    """Another program. Raises OSError if it cannot be run."""

    def __init__(self, command: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)  # noqa: S603

    def wait(self, seconds: float) -> None:
        self._process.wait(seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class _Fork:
    """A part of this program. Raises OSError if there can be no other process."""

    def __init__(self, name: str, work: Callable[[], None], output: IO[bytes], errors: IO[bytes]) -> None:
        self._name = name
        self._process = get_context("fork").Process(target=_carry_out, args=(work, output.fileno(), errors.fileno()))
        self._process.start()

    def wait(self, seconds: float) -> None:
        self._process.join(seconds)
        if self._process.is_alive():
            raise subprocess.TimeoutExpired(self._name, seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _carry_out(work: Callable[[], None], output: int, errors: int) -> None:
    os.dup2(output, 1)
    os.dup2(errors, 2)
    work()


class Programs:
    """Programs that run at the same time, with their outputs in memory. As a context manager it ends those that still run."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SECONDS
        self._running: dict[str, list[_Output]] = {}
        self._failed: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in (one for those in self._running.values() for one in those):
            program.end()

    def start(self, name: str, *commands: Sequence[str]) -> None:
        """Starts programs whose outputs, one after the other, go by one name."""
        for command in commands:
            self._start(name, partial(_Program, command))

    def fork(self, name: str, work: Callable[[], None]) -> None:
        """Does `work` in a fork of this process, which must have only one thread: what is imported is not imported again."""
        self._start(name, partial(_Fork, name, work))

    def _start(self, name: str, start: Start) -> None:
        try:
            self._running.setdefault(name, []).append(_Output(name, start))
        except OSError as error:
            self._failed[name] = str(error)

    def outputs(self) -> Iterator[tuple[str, bytes]]:
        """Yields (file name, output) by name; `NAME.error.txt` if a program cannot be run or takes too long."""
        for name, programs in self._running.items():
            try:
                text = b"".join([one.read(max(0.0, self._end - time.monotonic())) for one in programs])
            except subprocess.TimeoutExpired as error:
                self._failed[name] = str(error)
            else:
                if name not in self._failed:
                    cut = b"\n... cut off here\n" if len(text) > LARGEST_BYTES else b""
                    yield f"{name}.txt", text[:LARGEST_BYTES] + cut
        for name, why in self._failed.items():
            yield f"{name}.error.txt", why.encode()


class _Output:
    """Two files in memory for the output and the errors of a program that runs. Raises OSError if it cannot be run."""

    def __init__(self, name: str, start: Start) -> None:
        self._files: list[IO[bytes]] = [os.fdopen(os.memfd_create(name), "w+b") for _ in range(2)]
        try:
            self._program = start(*self._files)
        except OSError:
            self._close()
            raise

    def read(self, seconds: float) -> bytes:
        """Waits for the program's end, and returns its output, or its errors if the output is empty. Raises TimeoutExpired."""
        self._program.wait(seconds)
        found = b""
        for file in self._files:
            file.seek(0)
            found = found or file.read(LARGEST_BYTES + 1)
        return found

    def end(self) -> None:
        """Kills the program if it still runs, and forgets its output."""
        self._program.kill()
        self._close()

    def _close(self) -> None:
        for file in self._files:
            file.close()


def start_commands(programs: Programs) -> None:
    """Starts all programs but those that list rules, and `nodeagent check`."""
    for name, command in _COMMANDS.items():
        programs.start(name, command)


def fork_check(programs: Programs, socket: Path | None, begun: Begun | None) -> None:
    """Starts `nodeagent check`. socket: the agent's; None: the default. begun: its first part, if that is done."""
    programs.fork("check", partial(_check, () if socket is None else ("--socket", str(socket)), begun))


def _check(arguments: Sequence[str], begun: Begun | None) -> None:
    check_command.main([*arguments], prog_name="nodeagent check", obj=begun)
