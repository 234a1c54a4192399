"""Where a request is worked on: a small one in the event loop, a large one in a thread, so that nobody waits for it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self, TypeVar

LARGE_BYTES: Final = 16 * 1024
"""What can be done to this much, pathological as it may be, takes less than 50 ms."""

_Result = TypeVar("_Result")


class Worker:
    """One thread for what is large, one thing after another. A context manager: leaving it waits for what is being done."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown(cancel_futures=True)

    async def run(self, size_bytes: int, function: Callable[[], _Result]) -> _Result:
        """What `function` returns; it is about `size_bytes` of data and touches nothing else. Raises what it raises."""
        if size_bytes <= LARGE_BYTES:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)
