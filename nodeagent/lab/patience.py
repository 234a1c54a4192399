"""Waiting in the thread of a lab for what shows that something has happened."""

import threading
import time
from collections.abc import Callable

from nodeagent.lab.net.namespace_process import AgentProcess
from nodeagent.lab.net.network_namespaces import LabError

SECONDS = 60.0
"""For what takes a few on an idle machine."""
LOOK_EVERY = 0.05


class Interrupted(LabError):
    """The lab is being taken down while it is being built."""


class TooLate(LabError):
    """Something did not happen in time."""


class Patience:
    """Waits until `interrupted` is set."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()

    def until(
        self, condition: Callable[[], bool], what: str, *, of: AgentProcess | None = None, seconds: float = SECONDS
    ) -> None:
        """Return when the condition holds. Raises Interrupted, TooLate, and LabError when the program `of` ended."""
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
            time.sleep(max(LOOK_EVERY, took))  # looking is half of the time at most

    def until_line(
        self, process: AgentProcess, words: str, what: str, *, after: int = 0, seconds: float = SECONDS
    ) -> None:
        """Return when a program has printed a line with these words, from line number `after` on."""
        self.until(lambda: any(words in line for line in process.lines[after:]), what, of=process, seconds=seconds)
