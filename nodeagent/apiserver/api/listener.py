"""Takes in connections, as many as there may be, and hands them to the handler of requests."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Self

from aiohttp import web

from nodeagent.runtime.serving.admission import Admission
from nodeagent.runtime.serving.connection import BoundedConnection
from nodeagent.runtime.serving.memory import FreedMemory

logger = logging.getLogger(__name__)
_UNSENT_BYTES: Final = 128 * 1024
_BACKLOG: Final = 1024
_KEEPALIVE_SECONDS: Final = 120.0
_HANDSHAKE_SECONDS: Final = 10.0
_GOODBYE_SECONDS: Final = 2.0
"""How long a connection that is closed waits for the other side to say so, too (TLS close_notify)."""
_HEAD_SECONDS: Final = 30.0
_READ_BYTES: Final = 64 * 1024
"""Of a body that are kept before it is read."""
_LOOK_EVERY_SECONDS: Final = 0.5
_OF_THE_CLIENT: Final = (errno.ECONNABORTED, errno.EPERM, errno.EPROTO)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Listener:
    """An address the handler answers on. An async context manager."""

    def __init__(
        self,
        handler: Handler,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        *,
        admission: Admission,
        shutdown_s: float = 5.0,
        pause_s: float = 1.0,
    ) -> None:
        # A watcher of something quiet that has hung up would be noticed at its next event only, an hour later.
        self._server = web.Server(handler, handler_cancellation=True)
        self._host = host
        self._port = port
        self._context = context
        self._admission = admission
        self._freed = FreedMemory()
        self._shutdown_s = shutdown_s
        self._pause_s = pause_s
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on, chosen by the system if 0 was asked for."""
        return int(self._sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        """Raises OSError when the address cannot be had."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                port = self._sockets[0].getsockname()[1] if self._sockets else address[1]
                self._sockets.append(_listen(family, (address[0], port, *address[2:])))
        except OSError:
            self._close_sockets()
            raise
        self._tasks = {
            *(asyncio.create_task(self._accept(sock), name=f"accept-{n}") for n, sock in enumerate(self._sockets)),
            asyncio.create_task(self._look_after(), name="connections"),
        }
        return self

    async def __aexit__(self, *_: object) -> None:
        running = [*self._tasks, *self._handshakes]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._close_sockets()
        self._freed.close()
        self._server.pre_shutdown()
        await self._server.shutdown(self._shutdown_s)

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            sock.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        failing = False
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _OF_THE_CLIENT:
                    continue
                if not failing:
                    logger.warning("no connection can be accepted, trying again soon error=%s", error)
                failing = True
                await asyncio.sleep(self._pause_s)
                continue
            if failing:
                logger.info("connections are accepted again")
                failing = False
            self._take_in(sock, address)

    def _take_in(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Begins the handshake; closes a connection for which there is no room."""
        arrival = _Arrival(sock)
        if not self._admission.enter(address, address[0], arrival.close):
            sock.close()
            return
        arrival.greeting = asyncio.create_task(self._greet(arrival, address), name="handshake")
        self._handshakes.add(arrival.greeting)
        arrival.greeting.add_done_callback(self._handshakes.discard)

    async def _greet(self, arrival: "_Arrival", address: tuple[str, int]) -> None:
        """Ends with the connection in the hands of the handler, or gone: what fails here is the client's affair."""
        secure = (
            {"ssl_handshake_timeout": _HANDSHAKE_SECONDS, "ssl_shutdown_timeout": _GOODBYE_SECONDS}
            if self._context
            else {}
        )
        arrival.started = True
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._connection(address),
                arrival.sock,
                ssl=self._context,
                **secure,
            )
        except OSError:
            # Not TLS, hung up, or too slow.
            self._admission.leave(address)
        except asyncio.CancelledError:
            self._admission.leave(address)
            raise
        else:
            arrival.transport = transport

    def _connection(self, address: tuple[str, int]) -> BoundedConnection:
        return BoundedConnection(
            self._server,
            self._admission,
            address,
            head_seconds=_HEAD_SECONDS,
            keepalive_seconds=_KEEPALIVE_SECONDS,
            read_bytes=_READ_BYTES,
            failed=_note_failure,
            ended=self._freed.connection_ended,
        )

    async def _look_after(self) -> None:
        """Closes strangers whose time is up."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            self._admission.overdue()


class _Arrival:
    """A connection from the moment it is accepted."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.greeting: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.started = False

    def close(self) -> None:
        """At once, whatever it is at."""
        if self.transport is not None:
            self.transport.abort()
        elif self.greeting is not None:
            self.greeting.cancel()
            if not self.started:
                self.sock.close()


def _note_failure(status: int, error: BaseException | None) -> None:
    """What is not HTTP is a matter of the client; an error of ours is logged. Nothing that was sent is."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error("a response could not be sent", exc_info=error)
    else:
        logger.debug("not a request error=%s", type(error).__name__)


def _listen(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # For its connections, too: without it the kernel takes megabytes for each client that does not read.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
