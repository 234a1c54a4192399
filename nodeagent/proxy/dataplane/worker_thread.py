"""Runs blocking work in a thread beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], *, hurry: Callable[[], None] | None = None) -> T:
    """Runs `work` in a worker thread. A cancelled caller gets its CancelledError only after `work` has ended.

    So no write to the kernel continues after the task that wanted it has ended. `hurry` is called on cancellation and
    may make long work stop early.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if hurry is not None:
            hurry()
        await asyncio.wait({running})
        running.exception()  # read, so that asyncio does not report it as lost
        raise
