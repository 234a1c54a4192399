"""Whose turn it is to be told: watchers with news are served in turns, a few hundred at a time.

A change that a thousand watchers wait for costs no thousand wake-ups of tasks: each is written to where it stands. Between
turns the loop answers other requests.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

_AT_ONCE: Final = 200
"""Watchers of one turn: at some 30 µs each they hold the loop for a few milliseconds."""


class Recipient(Protocol):
    """Somebody with news to deliver."""

    def deliver(self) -> None:
        """Passes on what is there, without waiting and without raising."""
        ...


class Deliveries:
    """The queue of recipients. Order is that of the first news; more news before its turn are one delivery."""

    def __init__(self) -> None:
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
        for _ in range(min(_AT_ONCE, len(self._queue))):
            recipient = self._queue.popleft()
            self._queued.discard(recipient)
            recipient.deliver()
        if self._queue:
            asyncio.get_running_loop().call_soon(self._turn)
