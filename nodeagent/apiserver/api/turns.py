"""A fair semaphore for expensive work: users take turns, so that no user waits for all the work of another user."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Bounds how many pieces of expensive work run at a time.
    most: pieces of work at the same time. per_user: of one user. Waiting users are served in turn."""

    def __init__(self, most: int, per_user: int) -> None:
        self._free = most
        self._per_user = per_user
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By user, in the order in which users are served next."""

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Waits for a turn of the user and holds it for the duration of the block."""
        await self.take(user)
        try:
            yield
        finally:
            self.release(user)

    async def take(self, user: str) -> None:
        """Waits for a turn, which the caller must end with `release`."""
        if self._free and self._working[user] < self._per_user:
            self._begin(user)
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self.release(user)
            else:
                self._withdraw(user, waiting)
            raise

    def release(self, user: str) -> None:
        """Ends a turn and starts the next ones that are possible."""
        self._free += 1
        self._working[user] -= 1
        if not self._working[user]:
            del self._working[user]
        self._serve_next()

    def _begin(self, user: str) -> None:
        self._free -= 1
        self._working[user] += 1

    def _serve_next(self) -> None:
        for user in list(self._waiting):
            if not self._free:
                return
            if self._working[user] >= self._per_user:
                continue
            line = self._waiting.pop(user)
            next_one = line.popleft()
            if line:
                self._waiting[user] = line
            self._begin(user)
            next_one.set_result(None)

    def _withdraw(self, user: str, waiting: "asyncio.Future[None]") -> None:
        line = self._waiting[user]
        line.remove(waiting)
        if not line:
            del self._waiting[user]
