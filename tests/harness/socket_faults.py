"""Netlink sockets that fail once: at a chosen call, before the kernel was asked or after it has done what it was asked for."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from nodeagent.wire.netlink.socket import NetlinkSocket
from tests.harness.effort import AT_LENGTH

ERRORS = (errno.ENOBUFS, errno.ENOMEM, errno.EINTR, errno.EAGAIN) if AT_LENGTH else (errno.ENOBUFS,)
CALLS = ("send", "receive")
STEP = 1 if AT_LENGTH else 13
"""From one call that fails to the next one that is tried, of passes that make many."""


@contextmanager
def failing_once(call: str, at: int, number: int) -> Iterator[Callable[[], bool]]:
    """Inside, the call number `at` (from 0) of `send` or `receive` raises OSError; what comes back says whether it did."""
    original: Callable[..., Any] = getattr(NetlinkSocket, call)
    calls = 0

    def faulty(self: NetlinkSocket, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at + 1:
            raise OSError(number, os.strerror(number))
        return original(self, *arguments)

    with patch.object(NetlinkSocket, call, faulty):
        yield lambda: calls > at
