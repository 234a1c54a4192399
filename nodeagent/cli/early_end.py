"""Signals before the daemon listens to them, while modules are imported and the configuration is read.

Nothing has been made then that would have to be put in order, so that SIGTERM and SIGINT end the process. SIGHUP waits. This is the first module that a process imports, so it
imports nothing that takes time.
"""

import os
import signal
from collections.abc import Sequence
from types import FrameType


def end_daemon_early(arguments: Sequence[str]) -> None:
    """From now on SIGTERM and SIGINT end this process with code 0, if it is `nodeagent run`, and SIGHUP, which would end
    it too, is blocked. `run_until_signal` replaces this before anything is programmed."""
    if arguments[:1] == ["run"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal's signature
    os._exit(0)
