"""Shares one call between all callers that waited before it was sent."""

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
        """Returns the result of the call; raises what it raises. Cancelling one caller leaves the call to the others."""
        if self._next is None:
            self._next = asyncio.create_task(self._round(), name="etcd-latest")
            self._next.add_done_callback(_retrieve_error)
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancels running calls."""
        for task in (self._next, self._running):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _round(self) -> _Result:
        if self._running is not None:
            await asyncio.wait({self._running})
        self._running, self._next = self._next, None
        return await self._call()


def _retrieve_error(task: "asyncio.Task[_Result]") -> None:
    """Retrieves the error of a task without waiters, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()
