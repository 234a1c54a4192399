"""The API server within the process of a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nodeagent.apiserver.api_server import ApiServer


@asynccontextmanager
async def serving(server: ApiServer) -> AsyncIterator[ApiServer]:
    """Runs the server for the duration of the block, which begins when it is ready. Raises what `run` raises."""
    running = asyncio.ensure_future(server.run())
    waiting = asyncio.ensure_future(server.ready.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield server
    finally:
        waiting.cancel()
        server.stop()
        await running
