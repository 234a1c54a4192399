"""An API server that says what a test tells it to, over real HTTP.

It knows nothing of Kubernetes: each path has a queue of answers. A watch for which nothing is queued stays open and
silent; any other request for which nothing is queued is a 404, as from a server that lacks the resource.
"""

import asyncio
import json
import ssl
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

RECORDINGS = Path(__file__).parents[1] / "recordings"


class FakeApiServer:
    """requests: path, query and headers of every request, in order; bodies: what they carried.

    peers: the common name in the client certificate of each request, empty without one.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], Mapping[str, str]]] = []
        self.bodies: list[bytes] = []
        self.peers: list[str] = []
        self._tls = tls
        self._answers: defaultdict[str, deque[Answer]] = defaultdict(deque)
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen; after a stop on the same port again."""
        self._stopping = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and break every connection."""
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def reply(self, path: str, body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Queue an answer: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(body=content, status=status, headers=headers)

        self._answers[path].append(answer)

    def answer(self, path: str, answer: Answer) -> None:
        """Queue an answer that the test writes itself."""
        self._answers[path].append(answer)

    def hold(self, path: str, until: asyncio.Event) -> None:
        """Queue an answer, without a body, of which nothing is sent before that event."""

        async def answer(_: web.Request) -> web.StreamResponse:
            await until.wait()
            return web.Response()

        self._answers[path].append(answer)

    def stream(self, path: str, pieces: Iterable[bytes], end: str = "close", every_seconds: float = 0.0) -> None:
        """Queue a 200 whose body is sent piece by piece. end: ``close``, ``abort`` (the connection) or ``hang``.
        every_seconds: seconds before each piece."""
        sent = list(pieces)

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for piece in sent:
                await asyncio.sleep(every_seconds)
                await response.write(piece)
            if end == "hang":
                await self._stopping.wait()
            if end == "abort" and request.transport is not None:
                request.transport.abort()
            return response

        self._answers[path].append(answer)

    def watches(self, path: str) -> list[dict[str, str]]:
        """The queries of the watches asked for at this path."""
        return [query for asked, query, _ in self.requests if asked == path and "watch" in query]

    def lists(self, path: str) -> list[dict[str, str]]:
        return [query for asked, query, _ in self.requests if asked == path and "watch" not in query]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, dict(request.query), request.headers))
        self.bodies.append(await request.read())
        self.peers.append(_peer(request))
        queued = self._answers[request.path]
        if queued:
            return await queued.popleft()(request)
        if "watch" not in request.query:
            return web.Response(status=404, text="404 page not found\n")
        response = web.StreamResponse()
        await response.prepare(request)
        await self._stopping.wait()
        return response


def _peer(request: web.Request) -> str:
    certificate = request.get_extra_info("peercert") or {}
    subject: dict[str, str] = dict(part[0] for part in certificate.get("subject", ()))
    return subject.get("commonName", "")


@pytest.fixture
def fake_api_server() -> type[FakeApiServer]:
    """The class: a server is started inside a test's event loop."""
    return FakeApiServer


@pytest.fixture
def recording() -> Callable[[str], Any]:
    """The response part of an exchange with a Kubernetes 1.36 API server: `body` of an answer, `events` of a watch."""
    return lambda name: json.loads((RECORDINGS / f"{name}.json").read_text())["response"]
