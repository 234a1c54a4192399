"""Ends the waits of all informers when one of them reaches the API server again.

Several informers follow one server, each with waits that have grown long during an outage. Separately each of them would
come back late; together they come back with the first one that reaches the server.
"""

import asyncio
from collections.abc import Coroutine


class Recovery:
    """Shared by all informers of one server."""

    def __init__(self) -> None:
        self._sleeping: set[asyncio.Task[None]] = set()

    async def wait(self, sleep: Coroutine[None, None, None]) -> None:
        """Returns when `sleep` is over, or earlier if another informer has reached the server."""
        async with asyncio.TaskGroup() as tasks:
            sleeping = tasks.create_task(sleep, name="waiting for the server")
            self._sleeping.add(sleeping)
            sleeping.add_done_callback(self._sleeping.discard)

    def reached(self) -> None:
        """Ends all waits, because the server has answered."""
        for sleeping in self._sleeping:
            sleeping.cancel()
