"""A queue of watchers with undelivered events; it is served for some milliseconds at a time.

A change that thousands of watchers wait for does not wake thousands of tasks: the event is written to each connection directly.
Between two turns the loop answers other requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

_TURN_SECONDS: Final = 0.005
_MOST_WOKEN: Final = 100
"""Tasks woken in one turn: all of them run in the next iteration of the loop, before anything else does."""


class Recipient(Protocol):
    """A watcher that has events to deliver."""

    def deliver(self) -> bool:
        """Delivers the pending events without waiting and without raising. Returns False if it woke a task to do so instead."""
        ...


class Deliveries:
    """The queue, ordered by each recipient's oldest undelivered event. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queue: deque[Recipient] = deque()
        self._queued: set[Recipient] = set()

    def add(self, recipient: Recipient) -> None:
        """Adds the recipient to the queue, if it is not in it. Must be called in the event loop."""
        if recipient in self._queued:
            return
        if not self._queue:
            asyncio.get_running_loop().call_soon(self._serve)
        self._queued.add(recipient)
        self._queue.append(recipient)

    def _serve(self) -> None:
        ends = self._clock() + _TURN_SECONDS
        woken = 0
        while self._queue and woken < _MOST_WOKEN and self._clock() < ends:
            recipient = self._queue.popleft()
            self._queued.discard(recipient)
            woken += not recipient.deliver()
        if self._queue:
            asyncio.get_running_loop().call_soon(self._serve)
