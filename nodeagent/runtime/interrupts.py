"""Signals that end a wait for a user or another process.

The interpreter only notes a signal, and runs its handler with the next statement. One that arrives while a system call is
prepared, after the last statement and before the kernel waits, has no effect until the call returns: the Ctrl-C of
a fast user, or of a program that has just read a line, would be lost until something else happens.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

LATEST_SECONDS = 1.0


@contextmanager
def prompt_signal_handling() -> Iterator[None]:
    """Makes the handler of a signal run within a second, whatever call blocks: a timer interrupts each system call for a moment
    (PEP 475). Only for the main thread, and not with a loop that watches a descriptor for signals, as asyncio does."""
    handler = signal.signal(signal.SIGALRM, lambda *_: None)
    timer = signal.setitimer(signal.ITIMER_REAL, LATEST_SECONDS, LATEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
