"""Signals that arrive before the daemon handles them, while modules are imported and the configuration is read.

Nothing needs cleaning up then, so SIGTERM and SIGINT end the process at once. SIGHUP waits. A process imports this module
first, so the module imports nothing that takes time.
"""

import os
import signal
from collections.abc import Sequence
from types import FrameType


def end_daemon_early(arguments: Sequence[str]) -> None:
    """For `nodeagent run`: lets SIGTERM and SIGINT end the process with code 0, and blocks SIGHUP, which would end it too.
    `run_until_signal` replaces these handlers before anything is programmed."""
    if arguments[:1] == ["run"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal's signature
    os._exit(0)
