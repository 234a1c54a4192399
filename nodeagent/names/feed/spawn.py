"""Starts the DNS process so that it goes on when its parent ends."""

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
"""The version, and what distinguishes installations of the same version: packages of a version may differ, also in
their libraries. Read at import, because an upgrade replaces the files of a running process."""


def spawn(control: int, sockets: Sequence[int], user: int, *, held: Sequence[int] = ()) -> int:
    """Starts the process with copies of these open files, in its own session. Returns its pid. held: files that it
    keeps open without using them. Raises OSError."""
    files = (control, *sockets, *held)
    first = max(files) + 1
    numbers = range(first, first + len(files))
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    if stat.S_ISFIFO(os.fstat(2).st_mode):  # the reader of our stderr must not wait for a process that outlives us
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
    # The copies stay open in the child; the originals are closed on exec.
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
    return os.posix_spawn(sys.executable, arguments, environment(), file_actions=actions, setsid=True)


def environment() -> Mapping[str, str]:
    """Returns the environment. In isolated mode (`python -I`) it names our libraries and hides the system's."""
    if not sys.flags.isolated:
        return os.environ
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": LIBRARIES}


def exit_status(pid: int) -> int | None:
    """Returns how a child ended, as os.waitstatus_to_exitcode does; None while it runs, or if it is not our child."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None
