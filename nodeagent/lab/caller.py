"""Used by commands: starts a lab, sends requests to its supervisor, ends it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from nodeagent.lab.directory import LabDirectory, labs
from nodeagent.lab.lab_plan import Settings
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.supervisor_messages import Refused, Reply, Request, TakeDown

END_PATIENCE = 20.0
SUPERVISOR = "nodeagent.lab.supervisor"

R = TypeVar("R", bound=Reply)


class NoSuchLab(LabError):
    """No lab with this name is running."""


class RequestRefused(LabError):
    """The supervisor refused; `unusable`: because the request was wrong."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.unusable = refused.unusable


class Line(msgspec.Struct):
    """A line that a supervisor prints while it builds: seconds since its start, what is done, whether all is done."""

    at: float
    text: str
    up: bool


def start(
    directory: LabDirectory, settings: Settings, environment: Mapping[str, str], said: Callable[[Line], None]
) -> None:
    """Builds a lab that continues after the return; if interrupted or failed, it leaves nothing. Raises ValueError,
    LabError, and OSError if files cannot be written."""
    settings.check()
    directory.check()
    directory.sweep()
    directory.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    inherited = {
        name: value for name, value in environment.items() if not name.startswith(("NODEAGENT_", "NOTIFY_", "JOURNAL_"))
    }
    inherited["PYTHONPATH"] = str(Path(__file__).parents[2])  # for programs that start as new interpreters
    supervisor = None
    with directory.log.open("w+b") as log:
        try:
            arguments = (str(directory.base), msgspec.json.encode(settings).decode())
            supervisor = start_supervisor(arguments, inherited, log)
            _wait_until_up(supervisor, said, log)
        except BaseException:
            if supervisor is not None:
                _end(supervisor)
            if directory.holder() is None:
                directory.sweep()
            raise


def start_supervisor(
    arguments: tuple[str, str], environment: Mapping[str, str], log: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Starts a supervisor, which prints its steps on the returned process' standard output. arguments: of its `main`."""
    return subprocess.Popen(
        [sys.executable, "-m", SUPERVISOR, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        cwd="/",
        start_new_session=True,
    )


def _wait_until_up(supervisor: "subprocess.Popen[bytes]", said: Callable[[Line], None], log: IO[bytes]) -> None:
    assert supervisor.stdout is not None
    for text in supervisor.stdout:
        line = msgspec.json.decode(text, type=Line)
        if line.up:
            return
        said(line)
    status = supervisor.wait()
    log.seek(0)  # by descriptor: the path may be deleted already
    words = log.read().decode(errors="replace").strip().splitlines()
    raise LabError(words[-1] if words else f"the supervisor ended with {status}")


def _end(supervisor: "subprocess.Popen[bytes]") -> None:
    supervisor.send_signal(signal.SIGTERM)
    try:
        supervisor.wait(END_PATIENCE)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


def take_down(directory: LabDirectory, *, patience: float = END_PATIENCE) -> bool:
    """Removes a lab, and what a killed one with this name left. Returns whether there was anything.
    patience: seconds to wait for its end after the request, and again after SIGTERM."""
    with directory.watched_holder() as holder:
        if holder is None:
            return bool(directory.sweep())
        if not (_agrees_to_end(directory, patience) and holder.ends_within(patience)):
            holder.end(patience=patience)
    directory.sweep()
    return True


def _agrees_to_end(directory: LabDirectory, patience: float) -> bool:
    try:
        with conversation(directory, TakeDown(), timeout=patience) as answers:
            for _ in answers:
                pass
    except LabError:
        return False
    return True


def check_there(directory: LabDirectory) -> None:
    """Raises NoSuchLab if the lab does not run."""
    if directory.holder() is None:
        running = labs(directory.base)
        there = f"; there is {', '.join(running)}" if running else ""
        raise NoSuchLab(f"there is no lab {directory.name}: `nodeagent lab up` makes one{there}")


@contextmanager
def conversation(
    directory: LabDirectory, request: Request, *, timeout: float | None = None
) -> Iterator[Iterator[Reply]]:
    """Sends a request and yields an iterator over the replies; leaving the context cancels the request. Raises
    NoSuchLab, RequestRefused, LabError."""
    check_there(directory)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(os.fsencode(directory.socket))
            connection.sendall(msgspec.json.encode(request) + b"\n")
        except OSError as error:
            raise LabError(f"lab {directory.name} does not answer (yet): {error.strerror or error}") from error
        with connection.makefile("rb") as lines:
            try:
                yield _replies(lines, directory)
            finally:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # unblocks a thread that still reads


def _replies(lines: IO[bytes], directory: LabDirectory) -> Iterator[Reply]:
    try:
        for line in lines:
            reply = msgspec.json.decode(line, type=Reply)
            if isinstance(reply, Refused):
                raise RequestRefused(reply)
            yield reply
    except OSError as error:
        raise LabError(f"lab {directory.name} stopped answering: {error}") from error


def ended_early(directory: LabDirectory) -> LabError:
    """Returns the error for a connection that closed before the expected reply."""
    return LabError(f"lab {directory.name} ended before it answered")


def ask(directory: LabDirectory, request: Request, expect: type[R], *, timeout: float | None = 60.0) -> R:
    """Returns the first reply of type `expect`. Raises NoSuchLab, RequestRefused, LabError."""
    with conversation(directory, request, timeout=timeout) as answers:
        for answer in answers:
            if isinstance(answer, expect):
                return answer
    raise ended_early(directory)
