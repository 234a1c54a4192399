"""The one thread of a lab for everything that blocks."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Work(Protocol):
    """Runs a blocking function in the lab's thread. A cancelled caller gets CancelledError after it has ended."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


class Worker:
    """A thread that runs one function after the other, each to its end."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab")

    async def __call__(self, function: Callable[[], T], /) -> T:
        """Returns or raises what the function does. A cancellation is raised after it has ended, instead of its result."""
        result = asyncio.get_running_loop().run_in_executor(self._thread, function)
        cancelled = False
        while not result.done():
            try:
                await asyncio.wait({result})
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            result.exception()  # retrieved, so that asyncio does not log it
            raise asyncio.CancelledError
        return result.result()

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown()
