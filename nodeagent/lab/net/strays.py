"""The end of processes by the network namespace they live in: those that nobody is the parent of any more."""

import os
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from nodeagent.lab.net.network_namespaces import DIRECTORY as NAMESPACES
from nodeagent.lab.net.network_namespaces import check_ours

OWN = Path("/proc/self/ns/net")


def end_processes_in(namespaces: Iterable[str], *, but: Iterable[int] = ()) -> list[int]:
    """Kill the processes whose network namespace is one of these (names of the lab); returns their pids."""
    numbers: set[int] = set()
    for name in namespaces:
        check_ours(name)
        with suppress(OSError):
            numbers.add((NAMESPACES / name).stat().st_ino)
    numbers.discard(OWN.stat().st_ino)  # a name whose namespace has been replaced by our own
    return _end(numbers, {os.getpid(), *but})


def end_processes_beside_us() -> None:
    """Kill all others whose network namespace is that of this process, and those they start meanwhile."""
    while _end({OWN.stat().st_ino}, {os.getpid()}):
        pass


def _end(numbers: Collection[int], spared: Collection[int]) -> list[int]:
    ended = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in spared and numbers and lives_in(int(entry.name), numbers):
            with suppress(ProcessLookupError):
                kill_in(int(entry.name), numbers)
                ended.append(int(entry.name))
    return ended


def lives_in(pid: int, namespaces: Iterable[int]) -> bool:
    """Whether the process's network namespace has one of these inode numbers."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino in namespaces
    except OSError:
        return False


def kill_in(pid: int, namespaces: Iterable[int]) -> None:
    """SIGKILL, unless the pid is another process by now. Raises ProcessLookupError."""
    process = os.pidfd_open(pid)
    try:
        if lives_in(pid, namespaces):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    finally:
        os.close(process)
