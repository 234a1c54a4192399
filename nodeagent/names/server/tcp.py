"""Queries by TCP (RFC 7766): many in one connection, each answered as soon as its answer is ready."""

import asyncio
import socket
import time
from contextlib import suppress

from nodeagent.names.server.datagrams import LARGEST_QUERY
from nodeagent.names.server.front import Front, Tasks, Waiting
from nodeagent.names.server.tally import tally_of
from nodeagent.names.shares import Client, Shares, client_at
from nodeagent.wire.dns.codes import TCP_LIMIT

IDLE_SECONDS = 10.0
"""Longest time between two queries of a connection."""
STALLED_SECONDS = 3.0
"""Longest time until the first query, and within one query."""
LOOK_AGAIN_SECONDS = 0.05
STEPS_TO_SERVE = 5
"""Steps of the event loop, two more than asyncio needs from accept(2) to `_serve`."""
MOST_CONNECTIONS = 512
"""Connections of all clients at one listening address."""
MOST_IN_ONE = 32
"""Queries of one connection that wait for upstream; at this number reading stops until one is answered."""
MOST_UNREAD = 2 * TCP_LIMIT
"""Bytes of answers that wait for one client, beside those in the kernel's buffer."""


class TcpListener:
    """Answers on one listening socket. If MOST_CONNECTIONS are open, a new one replaces one of the client that has the
    most: the one whose last query is the oldest (RFC 7766, 6.2.3)."""

    def __init__(self, sock: socket.socket, front: Front, tasks: Tasks) -> None:
        self._socket = sock
        self._front = front
        self._tasks = tasks
        self._server: asyncio.Server | None = None
        self._shares = Shares(MOST_CONNECTIONS)
        self._open: dict[Client, dict[asyncio.StreamWriter, None]] = {}
        """The connections of each client; the one with the latest query last."""
        self.tally = tally_of(sock, "tcp")

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._shares.total

    async def start(self) -> None:
        """Begins to accept; earlier connections have waited in the socket."""
        self._socket.setblocking(False)
        self._server = await asyncio.start_server(self._serve, sock=self._socket.dup(), limit=LARGEST_QUERY)

    async def stop(self) -> None:
        """Stops accepting. Then each accepted connection is among the open ones, and all others wait in the socket."""
        if self._server is None:
            return
        for accepting in self._server.sockets:
            asyncio.get_running_loop().remove_reader(accepting)
        # asyncio drops a connection that is accepted but has no transport yet when its server is closed.
        for _ in range(STEPS_TO_SERVE):
            await asyncio.sleep(0)
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        if peer is None:  # the client has closed it already
            writer.close()
            return
        client = client_at(peer[0])
        self._enter(client, writer)
        own = Tasks()
        try:
            with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self._serve_queries(reader, writer, peer[0], own)
            await own.finish(STALLED_SECONDS if self._is_open(client, writer) else 0)
        finally:
            self._leave(client, writer)
            writer.close()

    def _enter(self, client: Client, writer: asyncio.StreamWriter) -> None:
        """Adds the connection; closes another one if there are too many."""
        self._open.setdefault(client, {})[writer] = None
        self._shares.take(client)
        if self._shares.total > MOST_CONNECTIONS:
            largest = self._shares.largest()
            idle = next(iter(self._open[largest]))
            self._leave(largest, idle)
            _end(idle)

    def _leave(self, client: Client, writer: asyncio.StreamWriter) -> None:
        """Removes the connection; does nothing if it was removed before."""
        if self._is_open(client, writer):
            self._shares.give_back(client)
            del self._open[client][writer]
            if not self._open[client]:
                del self._open[client]

    def _is_open(self, client: Client, writer: asyncio.StreamWriter) -> bool:
        return writer in self._open.get(client, ())

    def _has_asked(self, client: Client, writer: asyncio.StreamWriter) -> None:
        if self._is_open(client, writer):
            del self._open[client][writer]
            self._open[client][writer] = None

    async def _serve_queries(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, own: Tasks
    ) -> None:
        """Answers queries until the client closes, stalls or is idle for too long."""
        room = asyncio.Semaphore(MOST_IN_ONE)
        patience = STALLED_SECONDS
        served = self._front.clients.are_served(peer)
        client = client_at(peer)
        while True:
            first = await _read(reader, 1, patience)
            second = await _read(reader, 1, STALLED_SECONDS)
            size = first[0] << 8 | second[0]
            if size > LARGEST_QUERY:
                return
            packet = await _read(reader, size, STALLED_SECONDS)
            self._has_asked(client, writer)
            patience = IDLE_SECONDS
            begun = time.monotonic()
            answer = self._front.reply(packet, tcp=True, client=peer) if served else self._front.refuse(packet)
            if isinstance(answer, Waiting):
                await room.acquire()
                own.start(asyncio.create_task(self._wait(answer, writer, peer, room, begun), name="forwarded query"))
            else:
                _send(writer, answer)
                if served:
                    self._front.count(self.tally.ours, packet, answer, peer, "tcp", time.monotonic() - begun)
            async with asyncio.timeout(IDLE_SECONDS):
                await writer.drain()

    async def _wait(
        self, waiting: Waiting, writer: asyncio.StreamWriter, peer: str, room: asyncio.Semaphore, begun: float
    ) -> None:
        try:
            answer = await self._front.resolve(waiting)
            _send(writer, answer)
            seconds = time.monotonic() - begun
            self._front.count(self.tally.theirs, waiting.query.packet, answer, peer, "tcp", seconds)
        finally:
            room.release()


async def _read(reader: asyncio.StreamReader, size: int, seconds: float) -> bytes:
    """Returns exactly `size` bytes. Raises IncompleteReadError, or TimeoutError if they do not arrive in time.

    If this process was suspended, the time is over although the bytes are there: then they are still read.
    """
    try:
        async with asyncio.timeout(seconds):
            return await reader.readexactly(size)
    except TimeoutError:
        async with asyncio.timeout(LOOK_AGAIN_SECONDS):
            return await reader.readexactly(size)


def _send(writer: asyncio.StreamWriter, answer: bytes | None) -> None:
    """Writes an answer; None: no answer. A client that does not read its answers loses the connection."""
    if answer is not None:
        writer.write(len(answer).to_bytes(2, "big") + answer)
        if writer.transport.get_write_buffer_size() > MOST_UNREAD:
            writer.transport.abort()


def _end(writer: asyncio.StreamWriter) -> None:
    """Closes the connection at once, even if the client reads nothing."""
    if writer.transport.get_write_buffer_size():
        writer.transport.abort()
    else:
        writer.close()
