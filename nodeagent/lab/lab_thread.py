"""The one thread of a lab in which everything happens that blocks."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Work(Protocol):
    """Does something that blocks, in the thread of the lab. Cancelled, it is raised once that has ended."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


class Worker:
    """A thread that does one thing after the other, each to its end: what has been asked for is never left behind."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab")

    async def __call__(self, function: Callable[[], T], /) -> T:
        """What the function returns or raises. A cancellation is raised when it has ended, instead of that."""
        result = asyncio.get_running_loop().run_in_executor(self._thread, function)
        cancelled = False
        while not result.done():
            try:
                await asyncio.wait({result})
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            result.exception()  # looked at, so that nobody reports it as forgotten
            raise asyncio.CancelledError
        return result.result()

    def close(self) -> None:
        """The thread ends."""
        self._thread.shutdown()
