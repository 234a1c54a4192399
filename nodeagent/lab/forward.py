"""Forwards TCP from one network namespace into another, without a link between them.

With it, kubectl on this machine reaches the API server inside a lab, and a lab reaches one outside.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from nodeagent.lab.net.network_namespaces import LabError

PIECE = 64 * 1024

Connect = Callable[[], socket.socket]


class Forwarder:
    """Forwards connections to `listener` to a socket that `connect` opens (in a thread), until it is closed.

    An async context manager; open connections end with it.
    """

    def __init__(self, listener: socket.socket, connect: Connect) -> None:
        self._listener = listener
        self._connect = connect
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, sock=self._listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is a task"
        self._open.add(task)
        try:
            with suppress(OSError, LabError):  # LabError: the namespace was removed
                there = await asyncio.open_connection(sock=await asyncio.to_thread(self._connect))
                try:
                    await _copy_both_ways((reader, writer), there)
                finally:
                    there[1].close()
        finally:
            writer.close()
            self._open.discard(task)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _copy_both_ways(here: Stream, there: Stream) -> None:
    """Copies in both directions until both sides have closed."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_copy(here[0], there[1]))
        group.create_task(_copy(there[0], here[1]))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(PIECE):
            target.write(piece)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
        return
    target.close()  # a broken connection breaks the other half too
