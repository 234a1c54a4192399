"""Reads from the kernel while rules may change, and turns errors into failures of a command."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.proxy.dataplane.errors import DataplaneError, KernelUnclear, NotPermitted, Unsupported

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


@contextmanager
def kernel_failures() -> Iterator[None]:
    """Turns a DataplaneError and OSError into a Failure with its exit code (context manager)."""
    try:
        yield
    except (NotPermitted, Unsupported) as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
