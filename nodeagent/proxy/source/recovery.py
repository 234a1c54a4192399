"""The first client that reaches the API server again wakes the others, which then end their own waits.

Several informers follow one server, each with waits that have grown long while it was away. Alone each of them would
come back late; together they come back with the first one that is lucky.
"""

import asyncio
from collections.abc import Coroutine


class Recovery:
    """Shared by all who follow one server."""

    def __init__(self) -> None:
        self._sleeping: set[asyncio.Task[None]] = set()

    async def wait(self, sleep: Coroutine[None, None, None]) -> None:
        """Return when `sleep` is over, or before that when somebody has reached the server."""
        async with asyncio.TaskGroup() as tasks:
            sleeping = tasks.create_task(sleep, name="waiting for the server")
            self._sleeping.add(sleeping)
            sleeping.add_done_callback(self._sleeping.discard)

    def reached(self) -> None:
        """The server has answered."""
        for sleeping in self._sleeping:
            sleeping.cancel()
