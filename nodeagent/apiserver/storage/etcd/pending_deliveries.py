"""Waiters until all changes up to a revision were delivered."""

import asyncio
from heapq import heappop, heappush
from itertools import count


class PendingDeliveries:
    """A queue of callers that wait until a revision was delivered, the earliest revision first."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def wait_for(self, revision: int) -> asyncio.Future[None]:
        """Returns a future that is done when all changes up to this revision were delivered."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (revision, next(self._numbers), future))
        return future

    def reach(self, position: int) -> None:
        """Completes the waiters for this revision and earlier ones."""
        while self._waiting and self._waiting[0][0] <= position:
            _, _, future = heappop(self._waiting)
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fails all waiters: nothing is delivered any more."""
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
