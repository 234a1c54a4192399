"""Logs errors that the event loop cannot raise to any caller."""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
"""Pause between lines about connections that cannot be accepted: the loop retries every second, at every listener."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class LoopFailures:
    """An event loop's exception handler. Errors that strangers cause by connecting are logged rarely, without
    traceback."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reported = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _EXHAUSTED or "socket" not in context:
            loop.default_exception_handler(context)
        elif self._clock() >= self._reported + REPORT_SECONDS:
            self._reported = self._clock()
            logger.warning("connections wait to be accepted, trying again every second: %s", error.strerror)
