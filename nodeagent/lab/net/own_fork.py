"""A process that is a fork of this one and starts like a new interpreter, but with its imports done.

Only a process with one thread may fork like this: other threads would not exist in the fork, but their locks would stay
held.
"""

import atexit
import ctypes
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path

PR_SET_NAME, PR_SET_MM, PR_SET_MM_MAP = 15, 35, 14
MEMORY_MAP = "11QQIi"
"""prctl(2)'s prctl_mm_map: eleven addresses, an auxiliary vector and its size, a descriptor of a program."""
STATE = 3
STAT_FIELDS = ((26, 27, 45, 46), (47,), (28,), (50, 51))
"""Fields of proc(5)'s stat (the third is the first after the name): code and data, heap, stack, environment."""
FIRST_OTHER = 3
"""The first descriptor that is not a standard stream."""


class OwnFork:
    """A child of this process, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._process = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._process, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._process)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


def fork_off(
    run: Callable[[], int], command_line: Sequence[str], streams: tuple[int, int, int], kept: Collection[int] = ()
) -> OwnFork:
    """Returns a process that calls `run` and exits with its result: it has its own session, default signals, these
    three streams and no other descriptors except those `kept`. ps(1) shows it with the command line."""
    assert threading.active_count() == 1, "locks of another thread would stay held in the fork"
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # so that the fork does not write the same again
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        raise
    if not pid:
        _run_fork(run, command_line, streams, kept, blocked)
    fork = OwnFork(pid)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    except BaseException:  # Ctrl-C in between: the fork would be lost
        fork.kill()
        fork.wait()
        raise
    return fork


def _run_fork(
    run: Callable[[], int],
    command_line: Sequence[str],
    streams: tuple[int, int, int],
    kept: Collection[int],
    blocked: Collection[int],
) -> None:
    """Runs the fork, from start to exit."""
    status = 1
    try:
        os.setsid()
        atexit._clear()  # the creator's handlers
        take_streams(streams)
        close_all_but(kept)
        default_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        with show_command_line(command_line):
            status = run()
    except BaseException:  # noqa: BLE001 - nothing may return into the creator's code
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def take_streams(streams: tuple[int, int, int]) -> None:
    """Makes these descriptors the standard streams; the originals stay open, too."""
    for number, stream in enumerate([fcntl(stream, F_DUPFD_CLOEXEC, FIRST_OTHER) for stream in streams]):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1, errors="backslashreplace")


def close_all_but(kept: Collection[int]) -> None:
    """Closes every descriptor except the standard streams and these."""
    last = FIRST_OTHER
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(last, descriptor)
        last = descriptor + 1


def default_signals() -> None:
    """Sets each signal as in a new interpreter: ignored ones stay ignored, and only SIGINT is handled."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def show_command_line(words: Sequence[str]) -> mmap.mmap:
    """Makes ps(1) show these words until the returned map is closed. A kernel without CONFIG_CHECKPOINT_RESTORE
    continues to show the creator's."""
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    area = mmap.mmap(
        -1, len(text), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )  # other processes cannot read a shared mapping here
    area.write(text)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    library = ctypes.CDLL(None)
    library.sbrk.restype = ctypes.c_size_t
    at = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
    code_and_data, heap, stack, rest = ([int(at[one - STATE]) for one in each] for each in STAT_FIELDS)
    places = (*code_and_data, *heap, library.sbrk(0), *stack, start, start + len(text), *rest)
    memory = struct.pack(MEMORY_MAP, *places, 0, 0, -1)
    library.prctl(PR_SET_NAME, os.fsencode(Path(words[0]).name))
    library.prctl(PR_SET_MM, PR_SET_MM_MAP, memory, ctypes.c_size_t(len(memory)), 0)
    return area
