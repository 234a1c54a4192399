"""HTTP listeners: many sockets, one answering function, and a server on a fixed address that keeps trying to bind.

They are open to the network without authentication: connections and what comes before a request are limited
(`nodeagent.runtime.serving`), an answer must be read within `ANSWER_SECONDS`, and nothing that a stranger sends is logged.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from nodeagent.model.addresses import Family, endpoint_text, family_of
from nodeagent.model.problem import Problem
from nodeagent.runtime.serving.admission import Admission, ConnectionLimits, site_of
from nodeagent.runtime.serving.connection import SERVER, BoundedConnection, write_in_time
from nodeagent.runtime.serving.memory import FreedMemory
from nodeagent.runtime.serving.responses import Request, Response, Stream

Answer = Callable[[Request], Response | Stream | Awaitable[Response]]
Report = Callable[[tuple[Problem, ...]], None]

REQUEST_SECONDS = 10.0
KEEPALIVE_SECONDS = 30.0
ANSWER_SECONDS = 30.0
"""A client must read a piece of an answer within this time."""
MOST_UNDER_WAY = 8
"""Answers to one address that take a while to make or to send, such as a scrape; 503 for more."""
_PIECE_BYTES = 64 * 1024
_READ_BYTES = 4096
"""Of bodies, which are never read here."""
_RECEIVE_BUFFER_BYTES = 32 * 1024
"""What the kernel keeps of a connection that is not read."""
RETRY_SECONDS = 5.0
"""Between attempts to bind (kube-proxy's wait.Until)."""
_BACKLOG = 64
_SHUTDOWN_SECONDS = 1.0  # for aiohttp's tasks to notice that their connection is gone; 0 would mean without end
LOG_SECONDS = 1.0
"""Between two lines about requests of strangers."""
_FAILED = Response(500, {}, b"")
_BUSY = Response(503, {"Content-Type": "text/plain; charset=utf-8"}, b"too many requests at a time\n")
_WILDCARDS = {"0.0.0.0": Family.IPV4, "::": Family.IPV6}  # noqa: S104 - what to compare with

logger = logging.getLogger(__name__)


class BindFailed(Exception):
    """An address could not be bound and the configuration makes that fatal; one line for users."""


def listening_socket(address: str, port: int) -> socket.socket:
    """Returns a socket that listens at one address in its family only (``::`` does not take IPv4). Raises OSError."""
    return _listen(address, port, only_ipv6=True)


def wildcard_socket(port: int) -> socket.socket:
    """Returns a socket for every address of either family; of IPv4 if the kernel has no IPv6. Raises OSError."""
    try:
        return _listen("::", port, only_ipv6=False)
    except OSError as error:
        if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
            raise
        return _listen("0.0.0.0", port, only_ipv6=True)  # noqa: S104 - it is for load balancers


def _listen(address: str, port: int, *, only_ipv6: bool) -> socket.socket:
    family = family_of(address)
    listener = socket.socket(family.socket_family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)  # its connections inherit it
        if family is Family.IPV6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_ipv6)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError):  # OverflowError: a port that no socket can have
        listener.close()
        raise
    return listener


class HttpListeners:
    """Any number of listening sockets with one answering function. Create and use it inside one event loop."""

    def __init__(
        self, answer: Answer, *, limits: ConnectionLimits | None = None, request_seconds: float = REQUEST_SECONDS
    ):
        self._answer = answer
        self._admission = Admission(
            limits or ConnectionLimits.without_credentials(_open_files()), asyncio.get_running_loop().time
        )
        self._request_seconds = request_seconds
        self._logged = float("-inf")
        self._under_way: Counter[str] = Counter()
        self._freed = FreedMemory()
        self._server = web.Server(self._handle)
        self._listeners: set[asyncio.Server] = set()

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Starts to answer at this socket, which now belongs to the listener that is returned."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._accept, sock=listener, backlog=_BACKLOG, start_serving=False)
        self._listeners.add(server)  # before the first suspension: a task that is cancelled in it leaves nothing open
        await server.start_serving()
        return server

    def stop(self, listener: asyncio.Server) -> None:
        """Closes a listener and the connections that came through it."""
        names = [listening.getsockname() for listening in listener.sockets]
        listener.close()
        self._listeners.discard(listener)
        for connection in self._server.connections:
            if any(_came_through(connection, name[0], name[1]) for name in names):
                connection.force_close()

    async def close(self) -> None:
        """Closes everything at once."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for connection in self._server.connections:
            connection.force_close()
        self._freed.close()
        await self._server.shutdown(timeout=_SHUTDOWN_SECONDS)

    def _accept(self) -> asyncio.Protocol:
        return _Connection(self._server, self._request_seconds, self._admission, self._report, self._freed)

    def _report(self, what: str, error: BaseException | None, *, level: int = logging.DEBUG) -> None:
        """Logs a line, unless there was one a moment ago. It contains nothing that a stranger sent."""
        now = asyncio.get_running_loop().time()
        if now >= self._logged + LOG_SECONDS:
            self._logged = now
            logger.log(level, "%s: %s", what, type(error).__name__)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if isinstance(request.protocol, _Connection):
            request.protocol.has_asked()
        client = site_of(request.remote or "")
        if self._under_way[client] >= MOST_UNDER_WAY:
            return await _send_whole(_BUSY, request)
        address, port = _local_address(request.protocol)
        try:
            asked = Request(
                request.path,
                family_of(address),
                port,
                request.method,
                request.query_string,
                request.headers.get("Host", ""),
                request.headers.get("Origin", ""),
                request.headers.get("Authorization", ""),
            )
            given = self._answer(asked)
        except Exception as error:  # noqa: BLE001  # the last guard: the connection ends, the agent does not
            given = self._failed(port, error)
        if isinstance(given, Stream):
            return await self._send(given, request)
        if isinstance(given, Response) and len(given.body) <= _PIECE_BYTES:
            return await _send_whole(given, request)
        self._under_way[client] += 1
        try:
            return await _send_whole(await self._await_response(given, port), request)
        finally:
            self._under_way -= Counter([client])  # subtracting a Counter keeps no address without answers in progress

    async def _await_response(self, given: Response | Awaitable[Response], port: int) -> Response:
        try:
            return given if isinstance(given, Response) else await given
        except Exception as error:  # noqa: BLE001  # as above
            return self._failed(port, error)

    def _failed(self, port: int, error: Exception) -> Response:
        self._report(f"cannot answer at port {port}", error, level=logging.ERROR)
        return _FAILED

    @staticmethod
    async def _send(stream: Stream, request: web.BaseRequest) -> web.StreamResponse:
        """Sends pieces as they come, until they end or the client disconnects."""
        sending = web.StreamResponse(headers={**stream.headers, "Server": SERVER})
        await sending.prepare(request)
        async with aclosing(stream.pieces) as pieces:
            with suppress(ConnectionError):
                async for piece in pieces:
                    await write_in_time(sending.write(piece), request, ANSWER_SECONDS)
        return sending


async def _send_whole(response: Response, request: web.BaseRequest) -> web.StreamResponse:
    """Sends an answer in pieces: if it is not read, the connection keeps at most one piece, and not for long."""
    headers, body = {**response.headers, "Server": SERVER}, response.body
    if len(body) <= _PIECE_BYTES or request.method == "HEAD":
        sending: web.StreamResponse = web.Response(status=response.status, body=body, headers=headers)
        body = b""
    else:
        sending = web.StreamResponse(status=response.status, headers=headers)
        sending.content_length = len(body)
    if not request.content.is_eof():
        sending.force_close()  # an unread body would be parsed as the next request
    await sending.prepare(request)
    with suppress(ConnectionError):
        for start in range(0, len(body), _PIECE_BYTES):
            await write_in_time(sending.write(body[start : start + _PIECE_BYTES]), request, ANSWER_SECONDS)
        await write_in_time(sending.write_eof(), request, ANSWER_SECONDS)
    return sending


def _report_failure(report: Callable[..., None], status: int, error: BaseException | None) -> None:
    if status >= _FAILED.status:
        report("an answer failed", error, level=logging.ERROR)
    else:
        report("a request that is not HTTP", error)


class _Connection(BoundedConnection):
    """A connection that is admitted by its port, and closed if its place is needed."""

    def __init__(
        self,
        server: web.Server,
        request_seconds: float,
        admission: Admission,
        report: Callable[..., None],
        freed: FreedMemory,
    ) -> None:
        super().__init__(
            server,
            admission,
            self,
            head_seconds=request_seconds,
            keepalive_seconds=KEEPALIVE_SECONDS,
            read_bytes=_READ_BYTES,
            failed=lambda status, error: _report_failure(report, status, error),
            ended=freed.connection_ended,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = self.peername
        source = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._admission.enter(self, source, self.force_close, _local_address(self)[1]):
            self.force_close()

    def has_asked(self) -> None:
        """Called when the client has made a request: the connection becomes the last one to be closed for a new one."""
        self._admission.note_request(self)


def _open_files() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit if limit != resource.RLIM_INFINITY else sys.maxsize


def _local_address(connection: RequestHandler) -> tuple[str, int]:
    """Returns the address and port the client connected to; IPv4 is written as IPv4, also on a socket for both families."""
    name = connection.sockname
    if not isinstance(name, tuple):
        return "::", 0
    return name[0].removeprefix("::ffff:") if "." in name[0] else name[0], name[1]


def _came_through(connection: RequestHandler, address: str, port: int) -> bool:
    local, local_port = _local_address(connection)
    return port == local_port and (address == local or _WILDCARDS.get(address) is family_of(local))


class HttpServer:
    """A server on a fixed address. If the address is in use, it retries until it is free.

    host: an IP address; ``0.0.0.0`` and ``::`` both mean every address of both families, as in Go programs.
    name, failure: for the Problem while it cannot be bound (``healthz server``, ``FailedToStart…``).
    report: called with all problems, at every change. hard_fail: raise BindFailed instead of retrying.
    """

    def __init__(
        self,
        host: str,
        port: int,
        answer: Answer,
        *,
        name: str,
        failure: str,
        report: Report,
        hard_fail: bool = False,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._host = host
        self._port = port
        self._answer = answer
        self._name = name
        self._failure = failure
        self._report = report
        self._hard_fail = hard_fail
        self._retry_seconds = retry_seconds

    async def run(self) -> None:
        """Serves until cancelled; connections are closed then. Raises BindFailed with `hard_fail`."""
        listener = await self._bind()
        listeners = HttpListeners(self._answer)
        try:
            await listeners.listen(listener)
            logger.info("%s listens on %s", self._name, endpoint_text(self._host, self._port))
            await asyncio.Event().wait()
        finally:
            await listeners.close()

    async def _bind(self) -> socket.socket:
        while True:
            try:
                listener = self._open()
            except OSError as error:
                problem = Problem(self._name, self._failure, self._explain(error))
                self._report((problem,))
                if self._hard_fail:
                    raise BindFailed(str(problem)) from error
                await asyncio.sleep(self._retry_seconds)
            else:
                self._report(())
                return listener

    def _open(self) -> socket.socket:
        return wildcard_socket(self._port) if self._host in _WILDCARDS else listening_socket(self._host, self._port)

    def _explain(self, error: OSError) -> str:
        then = "" if self._hard_fail else f"; tried again every {self._retry_seconds:g} seconds"
        return f"cannot listen on {endpoint_text(self._host, self._port)}: {reason_of(error)}{then}"


def reason_of(error: OSError) -> str:
    """Returns the kernel's text for the error."""
    return os.strerror(error.errno) if error.errno else str(error)
