"""Runs the work of a request: small work in the event loop, large work in a thread, so that no other request waits for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

LARGE_BYTES: Final = 16 * 1024
"""Any work on data of this size takes less than 50 ms, even in the worst case."""

_Result = TypeVar("_Result")


class Worker:
    """One thread for large work, one job at a time. A context manager; on exit it waits for the running job."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(cancel_futures=True)

    async def run(self, size_bytes: int, function: Callable[[], _Result]) -> _Result:
        """Returns what `function` returns. `size_bytes`: about how much data it works on; it must not touch shared state."""
        if size_bytes <= LARGE_BYTES:
            return function()
        return await self.run_large(function)

    async def run_large(self, function: Callable[[], _Result]) -> _Result:
        """Returns what `function` returns, which runs in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)
