"""Waits in the thread of a lab until something is seen to have happened."""

import threading
import time
from collections.abc import Callable

from nodeagent.lab.net.namespace_process import AgentProcess
from nodeagent.lab.net.network_namespaces import LabError

SECONDS = 60.0
"""Timeout for what takes a few seconds on an idle machine."""
LOOK_EVERY = 0.05


class Interrupted(LabError):
    """The lab is being taken down while it is being built."""


class TooLate(LabError):
    """Something did not happen in time."""


class Patience:
    """Waits for conditions until `interrupted` is set."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()

    def until(
        self, condition: Callable[[], bool], what: str, *, of: AgentProcess | None = None, seconds: float = SECONDS
    ) -> None:
        """Waits until the condition holds. Raises Interrupted, TooLate, and LabError if the program `of` ended."""
        deadline = time.monotonic() + seconds
        while True:
            began = time.monotonic()
            if condition():
                return
            took = time.monotonic() - began
            if self.interrupted.is_set():
                raise Interrupted("interrupted")
            if of is not None and not of.running:
                raise LabError(f"a program ended while waiting for {what}: {of.last_words()}")
            if time.monotonic() > deadline:
                raise TooLate(f"{what}: not within {seconds:.0f} s")
            time.sleep(max(LOOK_EVERY, took))  # the condition takes at most half of the time

    def until_line(
        self, process: AgentProcess, words: str, what: str, *, after: int = 0, seconds: float = SECONDS
    ) -> None:
        """Waits until a program has printed a line with these words, from line number `after` on."""
        self.until(lambda: any(words in line for line in process.lines[after:]), what, of=process, seconds=seconds)
