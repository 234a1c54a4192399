"""Processes that start with their modules imported: forks of a server that has imported them once.

A new interpreter takes an actor 0.1 s of processor time to start, nearly all of it for imports; a fork takes 0.005 s.
The server has one thread and ends with its creator. Every fork starts like a new interpreter: default signals, no open
descriptors except the standard ones and those it is given.
"""

import ctypes
import importlib
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path

import msgspec

from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.runtime.imports import import_all

LARGEST_ORDER = 1 << 17
MOST_DESCRIPTORS = 8
START_DEADLINE = 60.0
PID_BYTES, STATUS_BYTES = 8, 4
PROGRAM = (sys.executable, "-m", "nodeagent.lab.net.fork_server")
PR_SET_NAME, PR_SET_MM, PR_SET_MM_MAP = 15, 35, 14
MEMORY_MAP = "11QQIi"
"""prctl(2)'s prctl_mm_map: eleven addresses, an auxiliary vector and its size, a descriptor of a program."""
STATE = 3
STAT_FIELDS = ((26, 27, 45, 46), (47,), (28,), (50, 51))
"""Fields of proc(5)'s stat (the third is the first after the name): code and data, heap, stack, environment."""
FIRST_OTHER = 3
"""The first descriptor that is not a standard stream."""


class Order(msgspec.Struct, frozen=True, array_like=True):
    """What a fork does: it calls ``module:function`` with these arguments, followed by the descriptors."""

    function: str
    arguments: tuple[str, ...]


class Fork:
    """A forked process, with the interface of `subprocess.Popen`. Raises LabError if the server has ended."""

    def __init__(self, reports: socket.socket) -> None:
        self._reports = reports
        self._looking = threading.Lock()
        self.returncode: int | None = None
        reports.settimeout(START_DEADLINE)
        try:
            pid = reports.recv(PID_BYTES)
        except OSError as error:
            raise LabError(f"no process was forked: {error}") from error
        if len(pid) != PID_BYTES:
            raise LabError("no process was forked: the server or the fork ended")
        self.pid = int.from_bytes(pid)

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""
        with self._looking:
            if self.returncode is None and select.select([self._reports], [], [], 0)[0]:
                self._take_status()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired."""
        with self._looking:
            if self.returncode is None:
                if not select.select([self._reports], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
                self._take_status()
            assert self.returncode is not None
            return self.returncode

    def _take_status(self) -> None:
        status = self._reports.recv(STATUS_BYTES)
        self._reports.close()
        # Without a status it ended together with the server.
        self.returncode = int.from_bytes(status, signed=True) if status else -signal.SIGKILL

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A fork of this process that forks as ordered, with everything that it and `modules` have imported. It ends with `close` or
    with its creator. This process must have only one thread, because locks of others would stay held, and default signals."""

    def __init__(self, *modules: str) -> None:
        import_all(modules)
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if not self.pid:
            self._orders.close()
            os.setsid()  # Ctrl-C is for the creator, which then ends what it has started
            with show_command_line([*PROGRAM, *modules]):
                carry_out(Order(f"{__name__}:main", ()), [theirs.fileno()])
        theirs.close()

    def fork(self, function: str, arguments: Sequence[str], descriptors: Sequence[int] = ()) -> Fork:
        """Returns a process that calls a function of one of the modules. Raises LabError."""
        reports, theirs = socket.socketpair()
        order = msgspec.json.encode(Order(function, tuple(arguments)))
        with theirs:
            try:
                socket.send_fds(self._orders, [order], [theirs.fileno(), *descriptors])
            except OSError as error:
                reports.close()
                raise LabError(f"no process was forked: {error}") from error
        return Fork(reports)

    def close(self) -> None:
        """Ends the server. Its forks continue, but their exit status is lost."""
        self._orders.close()
        os.waitpid(self.pid, 0)


def serve(orders: socket.socket) -> None:
    """Forks as ordered until the creator closes the socket; in a fork, this does not return."""
    reports: dict[int, socket.socket] = {}
    awake, wake = socket.socketpair()
    for end in (awake, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([orders, awake], [], [])
        if awake in ready:
            awake.recv(1024)
            report_ended(reports)
        if orders in ready:
            data, descriptors, _, _ = socket.recv_fds(orders, LARGEST_ORDER, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
            if not data:
                return
            report = socket.socket(fileno=descriptors[0])
            pid = os.fork()
            if not pid:
                begin_fork(report, (orders, awake, wake, *reports.values()))
                carry_out(msgspec.json.decode(data, type=Order), descriptors[1:])
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            reports[pid] = report


def begin_fork(report: socket.socket, inherited: Iterable[socket.socket]) -> None:
    """Prepares a fork to look like a new interpreter, and sends its pid to the creator."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for one in inherited:
        one.close()
    with report, suppress(OSError):  # the creator may have ended meanwhile
        report.sendall(os.getpid().to_bytes(PID_BYTES))


def report_ended(reports: dict[int, socket.socket]) -> None:
    """Sends the exit status of each ended child to the creator."""
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with reports.pop(pid) as report, suppress(OSError):
            report.sendall(os.waitstatus_to_exitcode(status).to_bytes(STATUS_BYTES, signed=True))


def carry_out(order: Order, descriptors: Sequence[int]) -> None:
    """Calls the function and exits: with 0, or with 1 and a traceback if it raises."""
    status = 1
    try:
        module, _, name = order.function.partition(":")
        getattr(importlib.import_module(module), name)(*order.arguments, *descriptors)
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the server's loop
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def take_streams(streams: tuple[int, int, int]) -> None:
    """Makes these descriptors the standard streams; the originals stay open, too."""
    for number, stream in enumerate([fcntl(stream, F_DUPFD_CLOEXEC, FIRST_OTHER) for stream in streams]):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1, errors="backslashreplace")


def show_command_line(words: Sequence[str]) -> mmap.mmap:
    """Makes ps(1) show these words until the returned map is closed. A kernel without CONFIG_CHECKPOINT_RESTORE
    continues to show the creator's."""
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    # Not shared: ps could not read a shared mapping here.
    area = mmap.mmap(-1, len(text), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
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


def main(descriptor: int) -> None:
    """Serves. descriptor: the socket of orders."""
    serve(socket.socket(fileno=descriptor))
