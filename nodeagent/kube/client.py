"""HTTP to one API server. Every failure leaves this file as a class of `errors`.

Bodies are read with `iter_any` and `read` only: aiohttp's line reader fails on lines longer than its buffer.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Protocol, Self

import aiohttp
import msgspec
from yarl import URL

from nodeagent.kube.credentials import fits_header
from nodeagent.kube.errors import (
    CredentialsError,
    MalformedAnswerError,
    OversizedError,
    ServerUnreachableError,
    UnauthorizedError,
    status_error,
)
from nodeagent.kube.kubeconfig import ClusterAccess
from nodeagent.kube.proxy import without_password
from nodeagent.kube.tls import TlsContexts

JSON = "application/json"

KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
"""Seconds, seconds, probes: a peer that vanished without a word is noticed after half a minute, not at a watch's end."""


BODY_LIMIT_BYTES = 128 << 20
"""Of one answer; 10,000 EndpointSlices of 10 endpoints are 30 MB."""
REFUSAL_LIMIT_BYTES = 64 << 10
"""Of an answer with an error status; more is cut off."""


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. connect: TCP and TLS. headers: until the answer starts. body: for the rest, unless it is a stream."""

    connect: float = 10.0
    headers: float = 60.0
    body: float = 60.0


class RequestListener(Protocol):
    """Who counts requests; must not raise or block."""

    def requested(self, method: str, host: str, code: str, seconds: float) -> None:
        """Called when the headers of an answer are there, or will not come (code ``<error>``)."""
        ...


class ApiClient:
    """Requests to the API server of `access`. An async context manager; use it inside one event loop.

    Paths start with ``/api`` or ``/apis``; a path in the server's URL is put before them. Every request raises
    ServerUnreachableError, CredentialsError, MalformedAnswerError (also for more than `body_limit` bytes) or a
    StatusError; a 401 is tried once more with a fresh credential.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        user_agent: str = "nodeagent",
        timeouts: Timeouts | None = None,
        body_limit: int = BODY_LIMIT_BYTES,
        listener: RequestListener | None = None,
    ) -> None:
        self._body_limit = body_limit
        self._listener = listener
        self._access = access
        self._tls = TlsContexts(access.trust)
        self._user_agent = user_agent
        self._timeouts = timeouts or Timeouts()
        self._session: aiohttp.ClientSession | None = None

    @property
    def server(self) -> str:
        """The server's URL, for messages, and what is between us and it."""
        proxy = self._access.proxy
        return f"{self._access.server} through {without_password(proxy)}" if proxy else self._access.server

    async def __aenter__(self) -> Self:
        # Compressing costs the API server more time than a cluster network saves.
        headers = {"User-Agent": self._user_agent, "Accept": JSON, "Accept-Encoding": "identity"}
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(
            headers=headers, connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes:
        """The body of a 2xx answer."""
        async with await self._open("GET", self._url(path, parameters)) as response:
            return await self._body(response)

    async def request_json(
        self,
        method: str,
        path: str,
        body: object,
        *,
        parameters: Iterable[tuple[str, str]] = (),
        content_type: str = JSON,
    ) -> bytes:
        """Send `body` (anything msgspec encodes) as JSON; the body of a 2xx answer.

        content_type: ``application/merge-patch+json`` and its like for a PATCH.
        """
        content = (content_type, msgspec.json.encode(body))
        async with await self._open(method, self._url(path, parameters), content) as response:
            return await self._body(response)

    @asynccontextmanager
    async def stream(self, path: str, parameters: Iterable[tuple[str, str]]) -> AsyncIterator[AsyncIterator[bytes]]:
        """A GET whose answer goes on: its pieces as they arrive, of any size. How long to listen is up to the caller.

        An orderly end ends the iterator, a broken connection raises ServerUnreachableError from it.
        """
        async with await self._open("GET", self._url(path, parameters)) as response:
            _detect_a_dead_peer(response)
            async with aclosing(self._pieces(response)) as pieces:
                yield pieces

    def _url(self, path: str, parameters: Iterable[tuple[str, str]]) -> URL:
        return URL(self._access.server + path).with_query(list(parameters))

    async def _open(self, method: str, url: URL, content: tuple[str, bytes] | None = None) -> aiohttp.ClientResponse:
        try:
            return await self._send(method, url, content)
        except UnauthorizedError:
            self._access.credentials.refused()
            return await self._send(method, url, content)

    async def _send(self, method: str, url: URL, content: tuple[str, bytes] | None) -> aiohttp.ClientResponse:
        """The answer, its body not read yet. Raises a StatusError when it is not 2xx."""
        assert self._session is not None, "ApiClient is used as an async context manager"
        credential = await self._access.credentials.current()
        if not fits_header(credential.authorization or ""):
            raise CredentialsError("the token holds a character that no token can have")
        headers = {"Authorization": credential.authorization} if credential.authorization else {}
        if content is not None:
            headers["Content-Type"] = content[0]
        encrypted = url.scheme == "https"
        with self._failures_named():
            async with self._counted(method, url) as counted, asyncio.timeout(self._timeouts.headers):
                response = await self._session.request(
                    method,
                    url,
                    headers=headers,
                    data=content[1] if content is not None else None,
                    ssl=self._tls.context(credential.client_certificate) if encrypted else True,
                    server_hostname=self._access.trust.server_name if encrypted else None,
                    proxy=self._access.proxy,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect),
                    allow_redirects=False,
                )
                counted.code = str(response.status)
            if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                return _as_asked(response)
            async with response, asyncio.timeout(self._timeouts.body):
                refusal = await _start_of_body(response)
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

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        with self._failures_named():
            async with asyncio.timeout(self._timeouts.body):
                return b"".join([piece async for piece in self._bounded(response)])

    async def _bounded(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        left = self._body_limit
        async for piece in response.content.iter_any():
            left -= len(piece)
            if left < 0:
                response.close()
                raise OversizedError(f"{self.server}: an answer of more than {self._body_limit} bytes")
            yield piece

    async def _pieces(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        with self._failures_named():
            async for piece in response.content.iter_any():
                yield piece

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise ServerUnreachableError(f"{self.server}: no answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a name that no host can have
            raise ServerUnreachableError(f"{self.server}: {_reason(error)}") from error


class _Outcome:
    """How a request ended, as client-go counts it."""

    code = "<error>"


async def _start_of_body(response: aiohttp.ClientResponse) -> bytes:
    start = b""
    async for piece in response.content.iter_any():
        start += piece
        if len(start) > REFUSAL_LIMIT_BYTES:
            response.close()
            return start[:REFUSAL_LIMIT_BYTES]
    return start


def _as_asked(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    """The answer itself. A compressed one, which nobody asked for, may be a thousand times what it seems."""
    coding = response.headers.get("Content-Encoding", "identity")
    if coding.lower() == "identity":
        return response
    response.close()
    raise MalformedAnswerError(f"an answer compressed with {coding!r:.40}, which was not asked for")


def _reason(error: Exception) -> str:
    """What the system says, in the same words each time: aiohttp's text has the address of an object in it."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ConnectionError) and cause.errno is not None:
        return os.strerror(cause.errno)
    return str(cause) or type(cause).__name__


def _detect_a_dead_peer(response: aiohttp.ClientResponse) -> None:
    transport = response.connection.transport if response.connection is not None else None
    connection = transport.get_extra_info("socket") if transport is not None else None
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
