"""Accepts connections up to a limit and hands them to the handler of requests."""

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
"""How long a closing connection waits for the peer's TLS close_notify."""
_HEAD_SECONDS: Final = 30.0
_READ_BYTES: Final = 64 * 1024
"""How much of a body is buffered before the handler reads it."""
_CHECK_EVERY_SECONDS: Final = 0.5
_SHUTDOWN_SECONDS: Final = 5.0
_CLIENT_ERRORS: Final = (errno.ECONNABORTED, errno.EPERM, errno.EPROTO)
"""Errors of accept that concern only one connection."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Listener:
    """An address on which the handler answers. An async context manager."""

    def __init__(
        self,
        handler: Handler,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        *,
        admission: Admission,
        pause_s: float = 1.0,
    ) -> None:
        # Without this, a watcher that hung up would be noticed only at its next event, perhaps an hour later.
        self._server = web.Server(handler, handler_cancellation=True)
        self._host = host
        self._port = port
        self._context = context
        self._admission = admission
        self._freed = FreedMemory()
        self._pause_s = pause_s
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port on which it listens; chosen by the kernel if 0 was configured."""
        return int(self._sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        """Starts to listen. Raises OSError if the address cannot be bound."""
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
            asyncio.create_task(self._close_overdue(), name="connections"),
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
        await self._server.shutdown(_SHUTDOWN_SECONDS)

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
                if error.errno in _CLIENT_ERRORS:
                    continue
                if not failing:
                    logger.warning("no connection can be accepted, trying again soon error=%s", error)
                failing = True
                await asyncio.sleep(self._pause_s)
                continue
            if failing:
                logger.info("connections are accepted again")
                failing = False
            self._start_handshake(sock, address)

    def _start_handshake(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Starts the handshake; closes the connection if the limit is reached."""
        connection = _NewConnection(sock)
        if not self._admission.enter(address, address[0], connection.close):
            sock.close()
            return
        connection.handshake = asyncio.create_task(self._shake_hands(connection, address), name="handshake")
        self._handshakes.add(connection.handshake)
        connection.handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: "_NewConnection", address: tuple[str, int]) -> None:
        """Does the TLS handshake and hands the connection to the handler. Errors are the client's and are not logged."""
        secure = (
            {"ssl_handshake_timeout": _HANDSHAKE_SECONDS, "ssl_shutdown_timeout": _GOODBYE_SECONDS}
            if self._context
            else {}
        )
        connection.started = True
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._connection(address),
                connection.sock,
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
            connection.transport = transport

    def _connection(self, address: tuple[str, int]) -> BoundedConnection:
        return BoundedConnection(
            self._server,
            self._admission,
            address,
            head_seconds=_HEAD_SECONDS,
            keepalive_seconds=_KEEPALIVE_SECONDS,
            read_bytes=_READ_BYTES,
            failed=_log_failure,
            ended=self._freed.connection_ended,
        )

    async def _close_overdue(self) -> None:
        """Closes connections without credentials whose time is up."""
        while True:
            await asyncio.sleep(_CHECK_EVERY_SECONDS)
            self._admission.close_overdue()


class _NewConnection:
    """An accepted connection, until the handler owns it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.handshake: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.started = False

    def close(self) -> None:
        """Closes the connection at once, in any state."""
        if self.transport is not None:
            self.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()
            if not self.started:
                self.sock.close()


def _log_failure(status: int, error: BaseException | None) -> None:
    """Logs errors of ours as errors. Malformed requests are the client's fault; nothing of their content is logged."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.error("a response could not be sent", exc_info=error)
    else:
        logger.debug("not a request error=%s", type(error).__name__)


def _listen(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it: without it the kernel buffers megabytes for each client that does not read.
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
