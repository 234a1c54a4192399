"""A program in a namespace, and waits for what it prints or does."""

import re
import time
from collections.abc import Callable

from nodeagent.lab.net import namespace_process
from nodeagent.lab.net.namespace_process import PATIENCE
from nodeagent.lab.net.network_namespaces import LabError

LOOK_EVERY = 0.005
LOOK_RARELY = 0.05
LATER = 1 / 20
"""A condition is seen late by at most this part of the time that it took."""


class AgentProcess(namespace_process.AgentProcess):
    def wait_for_line(self, pattern: str, *, seconds: float = PATIENCE, after: int = 0) -> str:
        """Returns the first line from number `after` on that matches the regular expression. Raises LabError."""
        found: list[str] = []

        def look() -> bool:
            found.extend(line for line in self._lines[after:] if re.search(pattern, line))
            return bool(found)

        self.wait_until(look, f"a line with {pattern!r}", seconds=seconds)
        return found[0]

    def wait_until(self, condition: Callable[[], bool], what: str, *, seconds: float = PATIENCE) -> None:
        """Waits until the condition holds. Raises LabError if it does not in time, or if the process ended."""
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
