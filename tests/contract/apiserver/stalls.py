"""How long a server's loop is held: processor time it takes between two turns of a task that is always ready."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stall:
    """`longest_s` is the processor time of the loop's thread that passed at most without a turn."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        """Takes turns until cancelled."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - last)
            last = now


@contextmanager
def measured(loop: asyncio.AbstractEventLoop) -> Iterator[Stall]:
    """Measures a loop that runs in another thread, for as long as the block lasts."""
    found = Stall()
    watching = asyncio.run_coroutine_threadsafe(found.watch(), loop)
    try:
        yield found
    finally:
        watching.cancel()
