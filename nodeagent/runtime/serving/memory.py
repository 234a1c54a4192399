"""Returns memory that connections used to the system, not only to the allocator."""

import asyncio
import ctypes
from typing import Final

_WORTH_RETURNING: Final = 64
"""Connections that have ended."""
_AFTER_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 10.0


class FreedMemory:
    """Returns freed memory (malloc_trim(3)) a moment after many connections have ended, at most every ten seconds."""

    def __init__(self) -> None:
        self._ended = 0
        self._timer: asyncio.TimerHandle | None = None
        self._returning: asyncio.Future[None] | None = None
        self._returned_at = float("-inf")

    def connection_ended(self) -> None:
        """Called in the event loop when a connection ended."""
        self._ended += 1
        if self._ended >= _WORTH_RETURNING and self._timer is None:
            loop = asyncio.get_running_loop()
            when = max(loop.time() + _AFTER_SECONDS, self._returned_at + _EVERY_SECONDS)
            self._timer = loop.call_at(when, self._return)

    def close(self) -> None:
        """Stops returning memory."""
        if self._timer is not None:
            self._timer.cancel()

    def _return(self) -> None:
        loop = asyncio.get_running_loop()
        self._ended, self._timer, self._returned_at = 0, None, loop.time()
        # In a thread: for a large heap it takes more than a moment.
        self._returning = loop.run_in_executor(None, return_freed)


def return_freed() -> None:
    """Returns freed memory to the system, if the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
