"""The process's end of the unix socket: it serves one agent at a time, the latest that connected."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from nodeagent.names.feed import feed_messages as messages

PIECE = 1 << 18
BACKLOG = 4


class Control:
    """Sends Hello with all sockets to each agent that connects, and hands its messages to `take`."""

    def __init__(
        self,
        listener: socket.socket,
        sockets: tuple[socket.socket, ...],
        *,
        pid: int,
        take: Callable[[messages.ToProcess], Awaitable[None]],
        lost: Callable[[], None],
    ) -> None:
        """lost: called when an agent disconnected."""
        self._listener = listener
        self._sockets = sockets
        self._pid = pid
        self._take = take
        self._lost = lost
        self._serving: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.settings: messages.Settings | None = None
        self.answering = False
        self.ending = False
        self.greeted = asyncio.Event()
        """Set when an agent has connected and received the sockets."""

    async def run(self) -> None:
        """Accepts agents until cancelled. The kernel shows them the pid of this process, because it calls listen."""
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            while True:
                connection, _ = await loop.sock_accept(self._listener)
                self.send(messages.Replaced())
                await self._end_serving()
                self._serving = asyncio.create_task(self._serve(connection), name="connection of the agent")
        finally:
            await self._end_serving()  # no message is sent: the agent sees the closed socket and starts another process

    def send(self, message: messages.FromProcess) -> None:
        """Sends a message to the agent, if one is connected."""
        if self._writer is not None:
            self._writer.write(messages.encode(message))

    async def _end_serving(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
            self._serving = None

    async def _serve(self, connection: socket.socket) -> None:
        descriptors = [sock.fileno() for sock in self._sockets]
        try:
            hello = messages.Hello(self._pid, self.settings, self.answering, self.ending)
            socket.send_fds(connection, [messages.encode(hello)], descriptors)
        except OSError:
            connection.close()
            return
        self.greeted.set()
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        self._writer = writer
        decoder = messages.Decoder(messages.ToProcess)
        try:
            while data := await reader.read(PIECE):
                for message in decoder.feed(data):
                    await self._take(message)  # type: ignore[arg-type]  # the decoder makes these
                    await asyncio.sleep(0)  # let queries be answered
        except (OSError, messages.BadFrame):
            pass  # the agent connects again and sends a full state
        finally:
            self._writer = None
            writer.close()
            self._lost()
