"""Ends leftover processes by their network namespace."""

import os
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from nodeagent.lab.net.network_namespaces import DIRECTORY as NAMESPACES
from nodeagent.lab.net.network_namespaces import check_ours

OWN = Path("/proc/self/ns/net")


def end_processes_in(namespaces: Iterable[str], *, but: Iterable[int] = ()) -> list[int]:
    """Kills the processes whose network namespace is one of these (names of the lab); returns their pids."""
    numbers: set[int] = set()
    for name in namespaces:
        check_ours(name)
        with suppress(OSError):
            numbers.add((NAMESPACES / name).stat().st_ino)
    numbers.discard(OWN.stat().st_ino)  # the name now belongs to our own namespace
    return _end(numbers, {os.getpid(), *but})


def end_processes_beside_us() -> None:
    """Kills all other processes in this process's network namespace, also those that they start meanwhile."""
    while _end({OWN.stat().st_ino}, {os.getpid()}):
        pass


def _end(numbers: Collection[int], spared: Collection[int]) -> list[int]:
    ended: list[int] = []
    if not numbers:
        return ended
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208 - a path for each would double the time
        if pid not in spared and lives_in(pid, numbers):
            with suppress(ProcessLookupError):
                kill_in(pid, numbers)
                ended.append(pid)
    return ended


def lives_in(pid: int, namespaces: Iterable[int]) -> bool:
    """Returns whether the process's network namespace has one of these inode numbers."""
    try:
        link = os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115 - stat() of a Path takes three times as long
    except OSError:
        return False
    return int(link.removeprefix("net:[").removesuffix("]")) in namespaces


def kill_in(pid: int, namespaces: Iterable[int]) -> None:
    """Sends SIGKILL, unless the pid is another process by now. Raises ProcessLookupError."""
    process = os.pidfd_open(pid)
    try:
        if lives_in(pid, namespaces):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)
