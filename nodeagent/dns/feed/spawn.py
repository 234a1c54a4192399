"""Starts the DNS process so that it lives on when its parent ends."""

import os
import stat
import sys
from collections.abc import Sequence

MODULE = "nodeagent.dns.server"


def spawn(control: int, sockets: Sequence[int], user: int) -> int:
    """Start the process with copies of these open files, in a session of its own; its pid. Raises OSError."""
    first = max((control, *sockets)) + 1
    numbers = range(first, first + 1 + len(sockets))
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    if stat.S_ISFIFO(os.fstat(2).st_mode):  # whoever reads our pipe to its end must not wait for a process that stays
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
    # A copy is open in the child though the original is not.
    actions += [
        (os.POSIX_SPAWN_DUP2, source, number) for source, number in zip((control, *sockets), numbers, strict=True)
    ]
    arguments = [sys.executable, "-P", "-m", MODULE, str(numbers[0]), str(user), *map(str, numbers[1:])]
    return os.posix_spawn(sys.executable, arguments, os.environ, file_actions=actions, setsid=True)


def exit_status(pid: int) -> int | None:
    """How a child ended, as os.waitstatus_to_exitcode says it; None while it runs, and for other people's children."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if ended else None
