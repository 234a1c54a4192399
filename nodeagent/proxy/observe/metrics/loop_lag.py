"""Measures how late the event loop is: a task that sleeps, and measures how much longer it slept."""

import asyncio
from collections.abc import Callable

PERIOD_SECONDS = 0.5


async def watch_loop(late: Callable[[float], None]) -> None:
    """Calls `late` with seconds, twice a second, until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + PERIOD_SECONDS
        await asyncio.sleep(PERIOD_SECONDS)
        late(max(0.0, clock() - due))
