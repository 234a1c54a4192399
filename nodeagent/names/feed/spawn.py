"""Starts the DNS process so that it lives on when its parent ends."""

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import nodeagent

MODULE = "nodeagent.names.server"
LIBRARIES = str(Path(nodeagent.__file__).parents[1])


def _program() -> str:
    installed = Path(nodeagent.__file__).stat()
    return f"{nodeagent.__version__} {installed.st_ino:x}.{installed.st_mtime_ns:x}"


PROGRAM = _program()
"""The version, and what tells one installation of it from the next: packages of a version may differ, as their libraries may.
Taken at the import, for an upgrade replaces the files below a process that goes on."""


def spawn(control: int, sockets: Sequence[int], user: int, *, held: Sequence[int] = ()) -> int:
    """Start the process with copies of these open files, in a session of its own; its pid. held: files that it keeps open
    and does not know. Raises OSError."""
    files = (control, *sockets, *held)
    first = max(files) + 1
    numbers = range(first, first + len(files))
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    if stat.S_ISFIFO(os.fstat(2).st_mode):  # the reader of our pipe must not wait for a process that stays
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
    # A copy is open in the child though the original is not.
    actions += [(os.POSIX_SPAWN_DUP2, source, number) for source, number in zip(files, numbers, strict=True)]
    arguments = [
        sys.executable,
        "-P",
        *(("-s", "-S") if sys.flags.isolated else ()),
        "-m",
        MODULE,
        str(numbers[0]),
        str(user),
        *map(str, numbers[1 : 1 + len(sockets)]),
    ]
    return os.posix_spawn(sys.executable, arguments, _environment(), file_actions=actions, setsid=True)


def _environment() -> Mapping[str, str]:
    """Where we run isolated from the system's libraries (`python -I`) so does the process, and finds ours by itself."""
    if not sys.flags.isolated:
        return os.environ
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": LIBRARIES}


def exit_status(pid: int) -> int | None:
    """How a child ended, as os.waitstatus_to_exitcode says it; None while it runs, and for other people's children."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None
