"""Queries by TCP (RFC 7766): many in one connection, answered as they are ready."""

import asyncio
import socket
import time
from contextlib import suppress

from nodeagent.dns.server.front import Front, Tasks, Waiting
from nodeagent.dns.server.tally import tally_of

IDLE_SECONDS = 10.0
"""Between two queries of a connection."""
STALLED_SECONDS = 3.0
"""Until the first query, and within one."""
LOOK_AGAIN_SECONDS = 0.05
MOST_CONNECTIONS = 512
MOST_IN_ONE = 32
"""Queries of one connection that wait for upstream; reading stops until one is answered."""


class TcpListener:
    """Answers on one listening socket."""

    def __init__(self, sock: socket.socket, front: Front, tasks: Tasks) -> None:
        self._socket = sock
        self._front = front
        self._tasks = tasks
        self._server: asyncio.Server | None = None
        self.connections = 0
        self.tally = tally_of(sock, "tcp")

    async def start(self) -> None:
        """Begin to accept; connections that came before wait in the socket."""
        self._socket.setblocking(False)
        self._server = await asyncio.start_server(self._serve, sock=self._socket.dup())

    def stop(self) -> None:
        """Accept no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.connections >= MOST_CONNECTIONS:
            writer.close()
            return
        self.connections += 1
        own = Tasks()
        try:
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._serve_queries(reader, writer, own)
            await own.finish(STALLED_SECONDS)
        finally:
            self.connections -= 1
            writer.close()

    async def _serve_queries(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: Tasks) -> None:
        """Until the client ends, stalls or is idle for too long."""
        room = asyncio.Semaphore(MOST_IN_ONE)
        patience = STALLED_SECONDS
        client = writer.get_extra_info("peername")[0]
        served = self._front.clients.are_served(client)
        while True:
            first = await _read(reader, 1, patience)
            second = await _read(reader, 1, STALLED_SECONDS)
            packet = await _read(reader, first[0] << 8 | second[0], STALLED_SECONDS)
            patience = IDLE_SECONDS
            begun = time.monotonic()
            answer = self._front.reply(packet, tcp=True, client=client) if served else self._front.refuse(packet)
            if isinstance(answer, Waiting):
                await room.acquire()
                own.start(asyncio.create_task(self._wait(answer, writer, room, begun), name="forwarded query"))
            else:
                _send(writer, answer)
                if served:
                    self._front.count(self.tally.ours, packet, answer, client, "tcp", time.monotonic() - begun)
            async with asyncio.timeout(IDLE_SECONDS):
                await writer.drain()

    async def _wait(
        self, waiting: Waiting, writer: asyncio.StreamWriter, room: asyncio.Semaphore, begun: float
    ) -> None:
        try:
            answer = await self._front.resolve(waiting)
            _send(writer, answer)
            client, seconds = writer.get_extra_info("peername")[0], time.monotonic() - begun
            self._front.count(self.tally.theirs, waiting.query.packet, answer, client, "tcp", seconds)
        finally:
            room.release()


async def _read(reader: asyncio.StreamReader, size: int, seconds: float) -> bytes:
    """So many bytes. Raises TimeoutError when they have not come within the time, and IncompleteReadError.

    A process that was held up for so long finds its time over and the bytes at once: then they count.
    """
    try:
        async with asyncio.timeout(seconds):
            return await reader.readexactly(size)
    except TimeoutError:
        async with asyncio.timeout(LOOK_AGAIN_SECONDS):
            return await reader.readexactly(size)


def _send(writer: asyncio.StreamWriter, answer: bytes | None) -> None:
    """None: silence."""
    if answer is not None:
        writer.write(len(answer).to_bytes(2, "big") + answer)
