"""Clients that do not finish the head of a request, at every HTTP listener there is, over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest

from nodeagent.apiserver.api_server import ApiServer
from nodeagent.apiserver.server_settings import ServerSettings
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.lab_plan import Settings
from nodeagent.lab.lab_thread import Worker
from nodeagent.lab.page.page_server import PageServer
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import HealthCheck, NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.observe.metrics.metrics_answers import MetricsAnswers
from nodeagent.proxy.observe.service_health import ServiceHealth
from nodeagent.proxy.source.mirror import mirror_endpoints
from nodeagent.runtime.serving import connection as bounds
from nodeagent.runtime.serving.admission import ConnectionLimits
from nodeagent.runtime.serving.http import HttpListeners, HttpServer, listening_socket
from nodeagent.runtime.serving.origins import AllowedHosts
from nodeagent.runtime.serving.responses import Request, Response
from tests.harness.free_ports import free_ports
from tests.harness.served_api import serving

PATIENCE_SECONDS = 60.0
BEGINNING = b"GET /healthz HTTP/1.1\r\nHost: localhost:%d\r\n"
FILLER = b"X: " + b"y" * 8000 + b"\r\n"
MOST_BYTES = 32 * 1024
GREETING = Response(200, {"Content-Type": "text/plain"}, b"hello")


@pytest.fixture(autouse=True)
def _no_other_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that waits for its next request is not what ends here."""
    monkeypatch.setattr("nodeagent.runtime.serving.http.KEEPALIVE_SECONDS", 10 * PATIENCE_SECONDS)
    monkeypatch.setattr(bounds, "LINGER_SECONDS", 10 * PATIENCE_SECONDS)


class Silent:
    def ready(self, status: str) -> None: ...

    def stopping(self) -> None: ...


def hello(_: Request) -> Response:
    return GREETING


@asynccontextmanager
async def running(task: object) -> AsyncIterator[None]:
    started = asyncio.ensure_future(task)  # type: ignore[call-overload]
    try:
        yield
    finally:
        started.cancel()
        with suppress(asyncio.CancelledError):
            await started


@asynccontextmanager
async def health(_: Path) -> AsyncIterator[int]:
    (port,) = free_ports(1)
    server = HttpServer("127.0.0.1", port, hello, name="healthz server", failure="Failed", report=lambda _: None)
    async with running(server.run()):
        yield port


@asynccontextmanager
async def metrics(_: Path) -> AsyncIterator[int]:
    async def late() -> bytes:
        return b""

    answers = MetricsAnswers(
        (),
        late=late,
        config=b"{}",
        version="1",
        ready=lambda: None,
        clock=lambda: 0.0,
        hosts=AllowedHosts(),
        page=hello,
    )
    (port,) = free_ports(1)
    server = HttpServer("127.0.0.1", port, answers.answer, name="metrics", failure="Failed", report=lambda _: None)
    async with running(server.run()):
        yield port


@asynccontextmanager
async def health_check_node_port(_: Path) -> AsyncIterator[int]:
    (port,) = free_ports(1)
    part = ServiceHealth(is_healthy=lambda: True, report=lambda _: None)
    part.node_addresses_changed(("127.0.0.1",))
    key = ObjectKey("default", "web")
    state = ServiceState(key, health_check=HealthCheck(port, {Family.IPV4: 1}))
    node = NodeState(node_port_cidrs=("127.0.0.0/8",))
    async with running(part.run()):
        part.passed(PassReport(0.0, 0.0, {Family.IPV4: TableReport()}, {key: state}, node=node))
        yield port


@asynccontextmanager
async def lab_page(directory: Path) -> AsyncIterator[int]:
    work = Worker()
    try:
        cluster = LiveCluster(Settings(nodes=1), LabDirectory(directory, "lab"), print)
        async with PageServer(cluster, work) as page:
            yield int(page.address.partition("/#")[0].rpartition(":")[2])
    finally:
        work.close()


def api_server(*, insecure: bool) -> "Callable[[Path], AbstractAsyncContextManager[int]]":
    @asynccontextmanager
    async def served(directory: Path) -> AsyncIterator[int]:
        settings = ServerSettings(port=0, data_dir=directory / "data", in_memory=True, insecure=insecure)
        async with serving(ApiServer(settings, mirror=mirror_endpoints, notifier=Silent())) as server:
            yield server.port

    return served


LISTENERS = {
    "health": health,
    "metrics and status page": metrics,
    "health check node port": health_check_node_port,
    "lab page": lab_page,
    "API server": api_server(insecure=False),
    "API server without TLS": api_server(insecure=True),
}


async def connected(port: int, *, tls: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = None
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(ConnectionRefusedError):
                return await asyncio.open_connection("127.0.0.1", port, ssl=context)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", LISTENERS)
def test_a_head_of_many_headers_is_refused_at_32_kilobytes(name: str, tmp_path: Path) -> None:
    """A connection that ran into a deadline would end in order and without a word."""

    async def scenario() -> None:
        async with LISTENERS[name](tmp_path) as port:
            reader, writer = await connected(port, tls=name == "API server")
            writer.write(BEGINNING % port)
            sent = 0
            answer: bytes | None = None
            async with asyncio.timeout(PATIENCE_SECONDS):
                while answer is None:
                    assert sent < 2 * MOST_BYTES
                    sent += len(FILLER)
                    try:
                        writer.write(FILLER)
                        await writer.drain()
                        if sent > MOST_BYTES:
                            answer = await reader.read()
                    except (ConnectionError, ssl.SSLError):
                        answer = b"reset"
            assert answer == b"reset" or answer.startswith(b"HTTP/1.1 431 ")
            assert b"aiohttp" not in answer
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", LISTENERS)
def test_trailers_without_end_are_refused_as_headers_are(name: str, tmp_path: Path) -> None:
    """They come after a body in chunks; the answer has been given by then, and the connection waits for the end of the body."""

    async def scenario() -> None:
        async with LISTENERS[name](tmp_path) as port:
            reader, writer = await connected(port, tls=name == "API server")
            request = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost:%d\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(request % port + b"1\r\nx\r\n0\r\n")
            sent = 0
            with suppress(ConnectionError, ssl.SSLError):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not writer.transport.is_closing() and not reader.at_eof():
                        assert sent < 2 * MOST_BYTES
                        sent += len(FILLER)
                        writer.write(FILLER)
                        await writer.drain()
                        if sent > MOST_BYTES + len(FILLER):
                            await reader.read()
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", LISTENERS)
def test_a_head_that_is_large_but_ends_is_answered(name: str, tmp_path: Path) -> None:
    """The control: cookies and tokens may be long."""

    async def scenario() -> None:
        async with LISTENERS[name](tmp_path) as port:
            reader, writer = await connected(port, tls=name == "API server")
            writer.write(BEGINNING % port + FILLER * 3 + b"Connection: close\r\n\r\n")
            async with asyncio.timeout(PATIENCE_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            assert head.split()[1] in {b"200", b"401", b"503"}
            assert b"\r\nServer: nodeagent\r\n" in head
            assert b"aiohttp" not in head
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", LISTENERS)
def test_bytes_other_than_http_get_no_version(name: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LISTENERS[name](tmp_path) as port:
            reader, writer = await connected(port, tls=name == "API server")
            writer.write(b"GET /\x01secret HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.0 400 Bad Request\r\n")
            assert b"\r\nServer: nodeagent\r\n" in answer
            assert answer.endswith(b"\r\n\r\nbad request\n")
            writer.close()

    asyncio.run(scenario())


async def opened(listeners: HttpListeners) -> int:
    server = await listeners.listen(listening_socket("127.0.0.1", 0))
    port: int = server.sockets[0].getsockname()[1]
    return port


def test_all_unfinished_heads_together_are_bounded_and_a_request_is_answered() -> None:
    async def scenario() -> None:
        limits = ConnectionLimits(unfinished_bytes=100_000)
        listeners = HttpListeners(hello, limits=limits, request_seconds=10 * PATIENCE_SECONDS)
        port = await opened(listeners)
        held = [await connected(port, tls=False) for _ in range(20)]
        for _, writer in held:
            writer.write(BEGINNING % port + FILLER * 3)
        closed = [asyncio.ensure_future(reader.read()) for reader, _ in held]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(one.done() for one in closed) < 15:
                await asyncio.wait(closed, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            reader, writer = await connected(port, tls=False)
            writer.write(BEGINNING % port + b"\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        assert sum(not one.done() for one in closed) <= 100_000 // len(FILLER * 3) + 1
        for other in (*(writer for _, writer in held), writer):
            other.close()
        await asyncio.gather(*closed, return_exceptions=True)
        await listeners.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("before", [b"", BEGINNING % 1 + b"\r\n"], ids=["the first head", "a later one"])
def test_a_head_that_comes_byte_by_byte_has_a_deadline(before: bytes) -> None:
    async def scenario() -> None:
        listeners = HttpListeners(hello, request_seconds=0.3)
        reader, writer = await connected(await opened(listeners), tls=False)
        writer.write(before)

        async def dribble() -> None:
            writer.write(b"GET / HTTP/1.1\r\nX: ")
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.05)

        async with asyncio.timeout(PATIENCE_SECONDS), running(dribble()):
            if before:
                await reader.readuntil(b"hello")
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        await listeners.close()

    asyncio.run(scenario())


def test_requests_do_not_queue_behind_one_whose_answer_nobody_takes() -> None:
    """Each that waits keeps its head."""

    async def scenario() -> None:
        answered = asyncio.Event()

        async def slow() -> Response:
            await answered.wait()
            return GREETING

        listeners = HttpListeners(lambda _: slow())
        port = await opened(listeners)
        reader, writer = await connected(port, tls=False)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with suppress(ConnectionError):
                for _ in range(bounds.WAITING + 2):
                    writer.write(BEGINNING % port + b"\r\n")
                    await writer.drain()
                assert await reader.read() == b""
        writer.close()
        answered.set()
        await listeners.close()

    asyncio.run(scenario())


def test_one_client_has_eight_answers_under_way_and_others_have_theirs() -> None:
    async def scenario() -> None:
        made = asyncio.Event()

        async def slow() -> Response:
            await made.wait()
            return GREETING

        listeners = HttpListeners(lambda _: slow())
        port = await opened(listeners)
        asked = [await connected(port, tls=False) for _ in range(12)]
        for _, writer in asked:
            writer.write(BEGINNING % port + b"Connection: close\r\n\r\n")
        reading = [asyncio.ensure_future(reader.read()) for reader, _ in asked]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(one.done() for one in reading) < 4:
                await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED, timeout=0.05)
            assert {one.result().split()[1] for one in reading if one.done()} == {b"503"}
            other = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.2.1", 0))
            other[1].write(BEGINNING % port + b"Connection: close\r\n\r\n")
            made.set()
            statuses = [answer.split()[1] for answer in await asyncio.gather(*reading, other[0].read())]
        assert (statuses.count(b"200"), statuses.count(b"503")) == (9, 4)
        for _, writer in [*asked, other]:
            writer.close()
        await listeners.close()

    asyncio.run(scenario())


def test_an_answer_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.runtime.serving.http.ANSWER_SECONDS", 0.2)

    async def scenario() -> None:
        listeners = HttpListeners(lambda _: Response(200, {}, b"x" * 20_000_000))
        port = await opened(listeners)
        reader, writer = await connected(port, tls=False)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(BEGINNING % port + b"\r\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while listeners._server.requests_count == 0 or listeners._server.connections:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.02)
        writer.close()
        await listeners.close()
        del reader

    asyncio.run(scenario())
