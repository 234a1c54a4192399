"""A command of `nodeagent` as a fork, whose supervisors of labs are forks, too: a new interpreter takes each 0.5 s for its imports."""

import atexit
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from nodeagent.lab import caller, supervisor
from nodeagent.lab.net import fork_server, warm_launcher
from nodeagent.lab.net.fork_server import Order, show_command_line, take_streams

ENTRY = f"{__name__}:carry_out"
LARGEST_DESCRIPTOR = 4096


class ForkedSupervisor:
    """A supervisor, with what `caller` uses of the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, steps: int) -> None:
        self.pid = pid
        self.stdout = os.fdopen(steps, "rb")
        self._ended = os.pidfd_open(pid)
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status. Raises subprocess.TimeoutExpired."""
        if self._status is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(caller.SUPERVISOR, timeout or 0.0)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def send_signal(self, number: int) -> None:
        if self._status is None:
            signal.pidfd_send_signal(self._ended, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def carry_out(*descriptors: int) -> None:
    """Becomes the command; never returns."""
    patched: Any = caller
    patched.start_supervisor = fork_supervisor
    warm_launcher.carry_out(*descriptors)


def fork_supervisor(arguments: tuple[str, str], environment: Mapping[str, str], log: IO[bytes]) -> ForkedSupervisor:
    """In place of `caller.start_supervisor`."""
    assert threading.active_count() == 1, "locks of other threads would stay held"
    steps, printed = os.pipe()
    pid = os.fork()
    if not pid:
        os.environ.clear()
        os.environ.update(environment)
        fork_server.carry_out(Order(f"{__name__}:supervise", arguments), (printed, log.fileno()))
    os.close(printed)
    return ForkedSupervisor(pid, steps)


def supervise(base: str, settings: str, printed: int, log: int) -> None:
    """Turns the fork into a supervisor; never returns. What the command has open, it does not inherit."""
    os.setsid()
    os.chdir("/")
    atexit._clear()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    with open(os.devnull, "rb") as nothing:
        take_streams((nothing.fileno(), printed, log))
    os.closerange(fork_server.FIRST_OTHER, LARGEST_DESCRIPTOR)
    with show_command_line((sys.executable, "-m", caller.SUPERVISOR, base, settings)):
        status = supervisor.main(base, settings)
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at the end of an interpreter
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
