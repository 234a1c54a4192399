"""Whose turn it is: watchers with news are served one after the other, for some milliseconds at a time.

A change that thousands of watchers wait for costs no thousands of wake-ups of tasks: each is written to where it stands. Between
turns the loop answers other requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

_TURN_SECONDS: Final = 0.005
_MOST_WOKEN: Final = 100
"""Tasks of one turn: all of them run in the next turn of the loop, before anything else does."""


class Recipient(Protocol):
    """Somebody with news to deliver."""

    def deliver(self) -> bool:
        """Passes on what is there, without waiting and without raising. False: it has woken a task that does it."""
        ...


class Deliveries:
    """The queue of recipients. Order is that of the first news; more news before its turn are one delivery. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queue: deque[Recipient] = deque()
        self._queued: set[Recipient] = set()

    def add(self, recipient: Recipient) -> None:
        """Gives the recipient a turn. Called in the loop."""
        if recipient in self._queued:
            return
        if not self._queue:
            asyncio.get_running_loop().call_soon(self._turn)
        self._queued.add(recipient)
        self._queue.append(recipient)

    def _turn(self) -> None:
        ends = self._clock() + _TURN_SECONDS
        woken = 0
        while self._queue and woken < _MOST_WOKEN and self._clock() < ends:
            recipient = self._queue.popleft()
            self._queued.discard(recipient)
            woken += not recipient.deliver()
        if self._queue:
            asyncio.get_running_loop().call_soon(self._turn)
