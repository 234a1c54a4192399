"""A program in a namespace: the agent, whatever its command line."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from nodeagent.lab.net.network_namespaces import LabError, check_ours

SHOWN_LINES = 40
LOOK_EVERY = 0.005
LOOK_RARELY = 0.05
LATER = 1 / 20
"""What has taken so long is seen later by this part of that, at most."""
PATIENCE = 60.0
"""Seconds until something that takes one on an idle machine is given up. Who cares how long it takes measures it."""


class Running(Protocol):
    """A process, as `subprocess.Popen` has it."""

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
        """A process in a session of its own, with a /sys of the namespace; both streams go to the descriptor `output`.

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
        """A program that has ended, and what it printed. Raises subprocess.TimeoutExpired."""
        command = ["ip", "netns", "exec", namespace, *argv]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout)


class AgentProcess:
    """`argv` running in the namespace, with a /sys of its own, in a session of its own; what it prints is collected.

    It is killed when the *thread* that started it ends, so start it from one that outlives it.
    """

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
        """The state the kernel has it in, as proc(5) writes it: T is stopped by a signal. Empty when it is gone."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2][:1]
        except OSError:
            return ""

    @property
    def lines(self) -> tuple[str, ...]:
        """All it has printed (both streams), over restarts too."""
        return tuple(self._lines)

    def last_words(self) -> str:
        """The last line it printed; when it has ended, the last one there will be."""
        if not self.running:
            self._reader.join()
        return self._lines[-1] if self._lines else ""

    def wait_for_line(self, pattern: str, *, seconds: float = PATIENCE, after: int = 0) -> str:
        """The first line from number `after` on in which the regular expression is found. Raises LabError."""
        found: list[str] = []

        def look() -> bool:
            found.extend(line for line in self._lines[after:] if re.search(pattern, line))
            return bool(found)

        self.wait_until(look, f"a line with {pattern!r}", seconds=seconds)
        return found[0]

    def wait_until(self, condition: Callable[[], bool], what: str, *, seconds: float = PATIENCE) -> None:
        """Return when the condition holds. Raises LabError when it does not in time or the process ended."""
        began = time.monotonic()
        while not condition():
            if not self.running:
                self._reader.join()
                if condition():
                    return
                raise LabError(f"{self._describe()} ended with {self._process.returncode} before {what}")
            took = time.monotonic() - began
            if took > seconds:
                raise LabError(f"{self._describe()} did not show {what} within {seconds} s")
            time.sleep(max(LOOK_EVERY, min(LOOK_RARELY, took * LATER)))

    def _describe(self) -> str:
        shown = "".join(f"\n  | {line}" for line in self._lines[-SHOWN_LINES:])
        return f"{' '.join(self._argv)} printed:{shown}\n"

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; one that ended already is fine."""
        self._process.send_signal(number)

    def stop(self, *, seconds: float = PATIENCE) -> int:
        """SIGTERM, and its exit status. Raises LabError when it does not end in time, with where it hung: it is ended
        by SIGABRT, at which the agent prints that, and killed when that does not help."""
        self.signal(signal.SIGTERM)
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            self.kill()
            raise LabError(f"{self._describe()} was still there {seconds} s after SIGTERM") from None
        self._reader.join()
        return status

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def restart(self, launcher: Launcher | None = None) -> None:
        """The same command once more; a running one is stopped first. launcher: another, from now on. Raises LabError."""
        if self.running:
            self.stop()
        self._launcher = launcher or self._launcher
        self._start()


def _without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """A namespace has no way to the machine's proxies, and what is asked from there is inside the lab."""
    return {name: value for name, value in environment.items() if name.upper() not in {"HTTP_PROXY", "HTTPS_PROXY"}}
