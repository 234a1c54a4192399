"""Signals that end what waits for a person or for another process.

The interpreter only notes a signal, and runs its handler with the next statement. One that arrives while a system call is
prepared, after the last statement and before the kernel waits, is noted and no more until the call returns: the Ctrl-C of
somebody who is fast, or of a program that has just read a line, would be lost until something else happens.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

LATEST_SECONDS = 1.0


@contextmanager
def heeding_signals() -> Iterator[None]:
    """Within a second of a signal its handler has run, whatever blocks meanwhile: a timer ends each system call for a moment
    (PEP 475). Only for the main thread, and not where a loop listens to a descriptor for signals, as asyncio does.
    """
    handler = signal.signal(signal.SIGALRM, lambda *_: None)
    timer = signal.setitimer(signal.ITIMER_REAL, LATEST_SECONDS, LATEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
