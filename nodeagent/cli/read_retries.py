"""Reads from the kernel while rules may change."""

import time
from collections.abc import Callable
from typing import TypeVar

from nodeagent.proxy.dataplane.errors import KernelUnclear

Found = TypeVar("Found")
READ_ATTEMPTS = 20
READ_PAUSE_SECONDS = 0.1
"""Pause between attempts to read while the rules change."""


def read_with_retries(read: Callable[[], Found], pause: Callable[[float], None] = time.sleep) -> Found:
    """Calls `read` until no change of the rules interrupts it, and returns its result. Raises KernelUnclear after
    READ_ATTEMPTS calls."""
    for _ in range(READ_ATTEMPTS - 1):
        try:
            return read()
        except KernelUnclear:
            pause(READ_PAUSE_SECONDS)
    return read()
