"""One call for all who asked before it was sent."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class CallCoalescer(Generic[_Result]):
    """Coalesces concurrent calls: each caller gets the result of a call that started after its own. One call runs at a time."""

    def __init__(self, call: Callable[[], Awaitable[_Result]]) -> None:
        self._call = call
        self._running: asyncio.Task[_Result] | None = None
        self._next: asyncio.Task[_Result] | None = None

    async def ask(self) -> _Result:
        """Raises what the call raises. Cancelling one who asked leaves the call to the others."""
        if self._next is None:
            self._next = asyncio.create_task(self._round(), name="etcd-latest")
            self._next.add_done_callback(_look_at)
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Ends what is under way."""
        for task in (self._next, self._running):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _round(self) -> _Result:
        if self._running is not None:
            await asyncio.wait({self._running})
        self._running, self._next = self._next, None
        return await self._call()


def _look_at(task: "asyncio.Task[_Result]") -> None:
    """An error that nobody waits for any more is not one that was never retrieved."""
    if not task.cancelled():
        task.exception()
