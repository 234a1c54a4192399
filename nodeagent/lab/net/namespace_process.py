"""A program in a namespace: the agent, or any command line."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from nodeagent.lab.net.network_namespaces import LabError, check_ours

SHOWN_LINES = 40
PATIENCE = 60.0
"""Default timeout in seconds of what takes one on an idle machine. Tests of speed measure the time themselves."""


class Running(Protocol):
    """A process, with the interface of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...

    def kill(self) -> None: ...


class Launcher:
    """Starts programs in namespaces."""

    def start(self, namespace: str, argv: Sequence[str], environment: Mapping[str, str], output: int) -> Running:
        """Returns a process in its own session, with a /sys of the namespace; both streams go to the descriptor
        `output`.

        The kernel kills it when the thread that started it ends (PR_SET_PDEATHSIG).
        """
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", namespace, *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )

    def run(
        self, namespace: str, argv: Sequence[str], *, stdin: str = "", timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end. Returns what it printed. Raises subprocess.TimeoutExpired."""
        command = ["ip", "netns", "exec", namespace, *argv]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout)


class AgentProcess:
    """`argv` running in the namespace, with its own /sys and session; its output is collected.
    It is killed when the *thread* that started it ends, so start it from a thread that outlives it."""

    def __init__(
        self,
        namespace: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        check_ours(namespace)
        self._launcher = launcher or Launcher()
        self._namespace = namespace
        self._argv = list(argv)
        self._environment = _without_proxies(os.environ) | dict(environment or {})
        self._lines: list[str] = []
        self._start()

    def _start(self) -> None:
        readable, writable = os.pipe()
        try:
            self._process = self._launcher.start(self._namespace, self._argv, self._environment, writable)
        except BaseException:
            os.close(readable)
            raise
        finally:
            os.close(writable)
        self._reader = threading.Thread(target=self._read, args=(readable,), daemon=True, name=self._argv[0])
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as printed:
            for line in printed:
                self._lines.append(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def kernel_state(self) -> str:
        """The kernel's state of the process as in proc(5): T is stopped by a signal. Empty if it does not exist."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2][:1]
        except OSError:
            return ""

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything it has printed (both streams), also before restarts."""
        return tuple(self._lines)

    def last_words(self) -> str:
        """Returns the last line that it printed; if it has ended, after all output was read."""
        if not self.running:
            self._reader.join()
        return self._lines[-1] if self._lines else ""

    def _describe(self) -> str:
        shown = "".join(f"\n  | {line}" for line in self._lines[-SHOWN_LINES:])
        return f"{' '.join(self._argv)} printed:{shown}\n"

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; does nothing if the process has ended."""
        self._process.send_signal(number)

    def stop(self, *, seconds: float = PATIENCE) -> int:
        """Sends SIGTERM. Returns its exit status. Raises LabError if it does not end in time, with the place where it
        hung: it gets SIGABRT, on which the agent prints that place, and then SIGKILL."""
        self.signal(signal.SIGTERM)
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            self.kill()
            raise LabError(f"{self._describe()} still ran {seconds} s after SIGTERM") from None
        self._reader.join()
        return status

    def kill(self) -> None:
        """Kills it (SIGKILL) and waits for its end."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def restart(self, launcher: Launcher | None = None) -> None:
        """Runs the same command again; stops it first if it runs. launcher: another one, from now on. Raises LabError."""
        if self.running:
            self.stop()
        self._launcher = launcher or self._launcher
        self._start()


def _without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without proxies, which a namespace cannot reach; all its requests stay in the lab."""
    return {name: value for name, value in environment.items() if name.upper() not in {"HTTP_PROXY", "HTTPS_PROXY"}}
