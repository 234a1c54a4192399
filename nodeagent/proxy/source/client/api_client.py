"""HTTP to an API server, or to one of several. Every failure is raised as a class of `api_errors`.

Bodies are read with `iter_any` and `read` only: aiohttp's line reader fails on lines longer than its buffer.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Protocol, Self

import aiohttp
import msgspec
from yarl import URL

from nodeagent.proxy.source.client.api_errors import (
    CredentialsError,
    ForbiddenError,
    KubeError,
    MalformedAnswerError,
    NotServedError,
    NotYetReachedError,
    OversizedError,
    ServerFailedError,
    ServerUnreachableError,
    StatusError,
    UnauthorizedError,
    status_error,
)
from nodeagent.proxy.source.client.credentials import Credential, fits_header
from nodeagent.proxy.source.client.exchange import (
    as_server_unreachable,
    detect_a_dead_peer,
    leave_unread,
    naming_what_expired,
    require_uncompressed,
    send_once,
    server_text,
    start_of_body,
    url_of,
)
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.server_choice import Failover, Server, Servers
from nodeagent.proxy.source.client.server_clock import ServerClock
from nodeagent.proxy.source.client.tls import ShownCertificates, TlsContexts

logger = logging.getLogger(__name__)
JSON = "application/json"
READY_PATH = "/readyz"
NOT_CARRIED_OUT = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE})
"""After one of these answers a write has not been carried out."""

BODY_LIMIT_BYTES = 128 << 20
"""The limit of one answer; 10,000 EndpointSlices of 10 endpoints are 30 MB."""


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. connect: TCP and TLS. headers: until the answer starts. body: for the rest, unless it is a stream; extended as long as
    at least `bytes_per_second` arrive."""

    connect: float = 7.5
    headers: float = 60.0
    body: float = 60.0
    bytes_per_second: float = 10_000.0


class RequestListener(Protocol):
    """Counts requests; must not raise or block."""

    def requested(self, method: str, host: str, code: str, seconds: float) -> None:
        """Called when the headers of an answer have arrived, or will not come (code ``<error>``)."""
        ...


class ApiClient:
    """Sends requests to the API server of `access`. An async context manager; use it inside one event loop.

    Paths start with ``/api`` or ``/apis``; a path in the server's URL is put before them. Every request raises
    ServerUnreachableError, CredentialsError, MalformedAnswerError (also for more than `body_limit` bytes) or a
    StatusError; after a 401 it is sent once more with a fresh credential.

    Of several servers one is in use. A request that it does not answer, or that it refuses but another may accept (401, 403, 5xx),
    goes to the next one at once, unless it is a write that may have been carried out; it fails only when all have failed.
    When another server is used instead, streams from the former one are closed.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        user_agent: str = "nodeagent",
        timeouts: Timeouts | None = None,
        body_limit: int = BODY_LIMIT_BYTES,
        failover: Failover | None = None,
        chance: Callable[[], float] = random.random,
        listener: RequestListener | None = None,
    ) -> None:
        self._body_limit = body_limit
        self._listener = listener
        self._servers = Servers(access.servers, chance)
        self._failover = failover or Failover()
        self._chance = chance
        self._unanswered = 0
        self._streams: dict[aiohttp.ClientResponse, Server] = {}
        self._away = asyncio.Event()
        self._homing: asyncio.Task[None] | None = None
        self._access = access
        self._tls = TlsContexts(access.trust)
        self.clock = ServerClock()
        self._user_agent = user_agent
        self._timeouts = timeouts or Timeouts()
        self._session: aiohttp.ClientSession | None = None

    @property
    def server(self) -> str:
        """The URLs of all servers, with the proxies to them, for messages."""
        return ", ".join(server_text(server) for server in self._access.servers)

    @property
    def shown_certificates(self) -> ShownCertificates:
        """The certificates that the servers showed last."""
        return self._tls.shown

    @property
    def has_several_servers(self) -> bool:
        return self._servers.are_several

    async def __aenter__(self) -> Self:
        # Compressing costs the API server more time than a cluster network saves.
        headers = {"User-Agent": self._user_agent, "Accept": JSON, "Accept-Encoding": "identity"}
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(
            headers=headers, connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        if self._servers.are_several:
            self._homing = asyncio.create_task(self._return_to_home(), name="way back to the API server of choice")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._homing is not None:
            self._homing.cancel()
            await asyncio.wait([self._homing])
            self._homing = None
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes:
        """Returns the body of a 2xx answer."""
        response, server = await self._open("GET", path, parameters)
        async with response:
            return await self._body(response, server)

    async def is_alive(self, path: str, seconds: float) -> bool:
        """Returns whether the server in use answers within this many seconds, with any status. If it does not and there are
        other servers, the next one is used from now on."""
        server = self._servers.current
        try:
            async with asyncio.timeout(seconds):
                await self._probe(server, path)
        except (ServerUnreachableError, TimeoutError) as error:
            self._leave(server, error)
            return self._servers.are_several
        except KubeError as error:
            logger.debug("the server is alive, it answered: %s", error)
        return True

    async def request_json(
        self,
        method: str,
        path: str,
        body: object,
        *,
        parameters: Iterable[tuple[str, str]] = (),
        content_type: str = JSON,
    ) -> bytes:
        """Sends `body` (anything msgspec encodes; None for no body) as JSON; returns the body of a 2xx answer.

        content_type: ``application/merge-patch+json`` and its like for a PATCH.
        """
        content = (content_type, msgspec.json.encode(body)) if body is not None else None
        response, server = await self._open(method, path, parameters, content)
        async with response:
            return await self._body(response, server)

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        parameters: Iterable[tuple[str, str]],
        rest_seconds: Callable[[int], float] = lambda size: 0.0,  # noqa: ARG005
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Sends a GET whose answer continues; yields its pieces as they arrive, of any size. The caller decides how long to read.

        rest_seconds: returns how long to read nothing after a piece of this many bytes: then what comes meanwhile is one piece.
        The iterator ends when the answer ends in order, and raises ServerUnreachableError if the connection breaks.
        """
        response, server = await self._open("GET", path, parameters)
        self._streams[response] = server
        try:
            async with response:
                detect_a_dead_peer(response)
                async with aclosing(self._pieces(response, server, rest_seconds)) as pieces:
                    yield pieces
        finally:
            del self._streams[response]

    @asynccontextmanager
    async def channel(
        self, path: str, parameters: Iterable[tuple[str, str]], protocols: Iterable[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Opens a WebSocket to the server in use that speaks one of these protocols. Raises MalformedAnswerError if it supports
        none of them, ServerUnreachableError also if the connection breaks while it is open."""
        assert self._session is not None, "ApiClient is used as an async context manager"
        server = self._servers.current
        url = url_of(server, path, parameters)
        encrypted = url.scheme == "https"
        credential = await self._access.credentials.current()
        try:
            with as_server_unreachable(server):
                async with asyncio.timeout(self._timeouts.headers):
                    opened = await self._session.ws_connect(
                        url,
                        protocols=tuple(protocols),
                        headers={"Accept": "*/*"}
                        | ({"Authorization": credential.authorization} if credential.authorization else {}),
                        ssl=self._tls.context(credential.client_certificate) if encrypted else True,
                        server_hostname=self._access.trust.server_name if encrypted else None,
                        proxy=server.proxy,
                    )
        except ServerUnreachableError as error:
            if isinstance(refusal := error.__cause__, aiohttp.WSServerHandshakeError):
                raise status_error(refusal.status, f"{path}: {refusal.message}".encode()) from error
            raise
        async with opened:
            if opened.protocol is None:
                raise MalformedAnswerError(f"{server_text(server)}: {path}: it supports none of {', '.join(protocols)}")
            with as_server_unreachable(server):
                yield opened

    async def _open(
        self,
        method: str,
        path: str,
        parameters: Iterable[tuple[str, str]] = (),
        content: tuple[str, bytes] | None = None,
    ) -> tuple[aiohttp.ClientResponse, Server]:
        """Returns the answer, with its body unread, and the server that gave it: the one in use, or another that is used from now on."""
        asked: dict[Server, KubeError] = {}
        parameters = tuple(parameters)
        while (server := self._servers.next_to_try(asked)) is not None:
            try:
                response = await self._authorized(method, server, path, parameters, content)
            except ServerUnreachableError as error:
                asked[server] = error
                self._leave(server, error)
                if method != "GET" and error.sent:
                    break
            except (UnauthorizedError, ForbiddenError, NotYetReachedError, ServerFailedError) as error:
                asked[server] = error
                if method != "GET" and error.code not in NOT_CARRIED_OUT:
                    break
            else:
                self._unanswered = 0
                if self._servers.current in asked:
                    self._use(server, asked[self._servers.current])
                return response, server
        self._unanswered += all(isinstance(error, ServerUnreachableError) for error in asked.values())
        # The status of one server says more than the silence of others.
        raise next((error for error in asked.values() if isinstance(error, StatusError)), next(iter(asked.values())))

    def _leave(self, server: Server, error: Exception) -> None:
        if self._servers.leave(server):
            self._server_changed(error)

    def _use(self, server: Server, why: Exception | str) -> None:
        if self._servers.use(server):
            self._server_changed(why)

    def _server_changed(self, why: Exception | str) -> None:
        logger.info("API server now: %s (%s)", server_text(self._servers.current), why or "no answer in time")
        if self._servers.current != self._servers.home:
            self._away.set()
        for response, server in self._streams.items():
            if server != self._servers.current:
                response.close()

    async def _return_to_home(self) -> None:
        """Returns to the home server when it is ready again. Ends only by cancellation."""
        while True:
            await self._away.wait()
            await asyncio.sleep(self._failover.home * (0.5 + self._chance()))
            home = self._servers.home
            if home != self._servers.current and await self._is_ready(home):
                self._use(home, "this agent's home server is ready again")
            if home == self._servers.current:
                self._away.clear()

    async def _is_ready(self, server: Server) -> bool:
        """Returns whether the server is ready. If the client may not ask for that, any answer is enough."""
        try:
            async with asyncio.timeout(self._failover.answer):
                await self._probe(server, READY_PATH)
        except (NotServedError, ForbiddenError):
            return True
        except (KubeError, TimeoutError) as error:
            logger.debug("not back to %s: %s", server_text(server), error)
            return False
        return True

    async def _probe(self, server: Server, path: str) -> None:
        """Sends a GET to this server and reads the answer, so that the connection can be used again."""
        response = await self._authorized("GET", server, path)
        with as_server_unreachable(server):
            async with response:
                await start_of_body(response)

    async def _authorized(
        self,
        method: str,
        server: Server,
        path: str,
        parameters: Iterable[tuple[str, str]] = (),
        content: tuple[str, bytes] | None = None,
    ) -> aiohttp.ClientResponse:
        url = url_of(server, path, parameters)
        try:
            return await self._send(method, server, url, content)
        except UnauthorizedError:
            self._access.credentials.refused()
            return await self._send(method, server, url, content)

    async def _send(
        self, method: str, server: Server, url: URL, content: tuple[str, bytes] | None
    ) -> aiohttp.ClientResponse:
        """Sends the request; returns the answer, with its body unread. Raises a StatusError if it is not 2xx."""
        credential = await self._access.credentials.current()
        if not fits_header(credential.authorization or ""):
            raise CredentialsError("the token holds a character that no token can have")
        with naming_what_expired(credential):
            return await self._send_with(credential, method, server, url, content)

    async def _send_with(
        self, credential: Credential, method: str, server: Server, url: URL, content: tuple[str, bytes] | None
    ) -> aiohttp.ClientResponse:
        assert self._session is not None, "ApiClient is used as an async context manager"
        headers = {"Authorization": credential.authorization} if credential.authorization else {}
        if content is not None:
            headers["Content-Type"] = content[0]
        encrypted = url.scheme == "https"
        connect, headers_within = self._timeouts_of_request()
        with as_server_unreachable(server):
            async with self._counted(method, url) as counted, asyncio.timeout(headers_within):
                response = await self._session.request(
                    method,
                    url,
                    headers=headers,
                    data=content[1] if content is not None else None,
                    ssl=self._tls.context(credential.client_certificate) if encrypted else True,
                    server_hostname=self._access.trust.server_name if encrypted else None,
                    proxy=server.proxy,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect),
                    allow_redirects=False,
                    middlewares=() if method == "GET" else (send_once(server),),
                )
                counted.code = str(response.status)
            self.clock.answered(response.headers.get("Date"))
            if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                return require_uncompressed(response)
            async with response, asyncio.timeout(self._timeouts.body):
                refusal = await start_of_body(response)
        raise status_error(response.status, refusal, response.headers.get("Retry-After"))

    @asynccontextmanager
    async def _counted(self, method: str, url: URL) -> AsyncIterator["_Outcome"]:
        outcome = _Outcome()
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            yield outcome
        finally:
            if self._listener is not None:
                self._listener.requested(method, url.authority, outcome.code, clock() - started)

    def _timeouts_of_request(self) -> tuple[float, float]:
        """Returns the seconds until a connection and until an answer. With several servers they are short, but grow each
        time that none of them has answered: they may all be slow."""
        if not self._servers.are_several:
            return self._timeouts.connect, self._timeouts.headers
        answer = self._failover.answer * 2 ** min(self._unanswered, 8)
        return min(self._timeouts.connect, self._failover.connect), min(self._timeouts.headers, answer)

    async def _body(self, response: aiohttp.ClientResponse, server: Server) -> bytes:
        loop = asyncio.get_running_loop()
        pause = self._timeouts_of_request()[1] if self._servers.are_several else self._timeouts.body
        end = loop.time() + self._timeouts.body
        pieces = []
        try:
            with as_server_unreachable(server):
                async with asyncio.timeout_at(min(end, loop.time() + pause)) as limit:
                    async for piece in self._bounded(response, server):
                        pieces.append(piece)
                        end += len(piece) / self._timeouts.bytes_per_second
                        limit.reschedule(min(end, loop.time() + pause))
        except ServerUnreachableError as error:
            error.begun = True
            self._leave(server, error)
            raise
        return b"".join(pieces)

    async def _bounded(self, response: aiohttp.ClientResponse, server: Server) -> AsyncGenerator[bytes, None]:
        left = self._body_limit
        async for piece in response.content.iter_any():
            left -= len(piece)
            if left < 0:
                response.close()
                raise OversizedError(f"{server_text(server)}: an answer of more than {self._body_limit} bytes")
            yield piece

    async def _pieces(
        self, response: aiohttp.ClientResponse, server: Server, rest_seconds: Callable[[int], float]
    ) -> AsyncGenerator[bytes, None]:
        with as_server_unreachable(server):
            async for piece in response.content.iter_any():
                yield piece
                if seconds := rest_seconds(len(piece)):
                    await leave_unread(response, seconds)


class _Outcome:
    """The code of a request's end, as client-go counts it."""

    code = "<error>"
