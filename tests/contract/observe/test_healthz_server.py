"""The healthz server over real connections: answers, addresses, a port that is taken, bad clients, the end."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.proxy.observe.health_answers import HealthAnswers
from nodeagent.proxy.observe.health_monitor import HealthMonitor
from nodeagent.runtime.serving.admission import ConnectionLimits
from nodeagent.runtime.serving.http import BindFailed, HttpListeners, HttpServer, listening_socket
from nodeagent.runtime.serving.responses import Request, Response

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GREETING = Response(200, {"Content-Type": "text/plain"}, b"hello")


class Queue:
    """A change queue, as far as health reads it."""

    oldest: float | None = None


PASS = PassReport(99.0, 100.0, {Family.IPV4: TableReport()})
"""A pass that succeeded at time 100."""


class Node:
    """Time and node as a test says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.eligible = True
        self.queue = Queue()
        self.monitor = HealthMonitor(
            self.queue,
            [Family.IPV4],
            timeout_seconds=60,
            clock=lambda: self.now,
        )
        self.answers = HealthAnswers(
            self.monitor,
            clock=lambda: self.now,
            wall=lambda: NOON,
            node_eligible=lambda: self.eligible,
        )
        self.problems: list[tuple[Problem, ...]] = []

    def server(self, port: int, host: str = "127.0.0.1", *, hard_fail: bool = False) -> HttpServer:
        return HttpServer(
            host,
            port,
            self.answers.answer,
            name="healthz server",
            failure="FailedToStartProxierHealthcheck",
            report=self.problems.append,
            hard_fail=hard_fail,
            retry_seconds=0.02,
        )


def test_healthz_and_livez_follow_changes_and_node(get: Any, until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        node = Node()
        (port,) = free_ports(1)
        async with running(node.server(port).run()):
            await until(lambda: bool(node.problems))
            assert (await get(port, "/healthz")).status == 200, "before the first pass"

            node.monitor.passed(PASS)
            node.queue.oldest = node.now
            assert (await get(port, "/healthz?verbose")).status == 200
            node.now = 160
            late = await get(port, "/healthz")
            assert late.status == 503
            assert late.body == (
                b'{"lastUpdated":"2026-03-01T11:59:00Z","currentTime":"2026-03-01T12:00:00Z","nodeEligible":true,'
                b'"healthy":false,"status":{"IPv4":{"lastUpdated":"2026-03-01T11:59:00Z","healthy":false}}}'
            )
            assert (await get(port, "/livez")).status == 503

            node.queue.oldest = None
            node.monitor.passed(PASS)
            node.eligible = False
            assert (await get(port, "/healthz")).status == 503
            assert (await get(port, "/livez")).status == 200
            assert (await get(port, "/other")).status == 404
        assert node.answers.counts == {
            ("/healthz", 200): 2,
            ("/healthz", 503): 2,
            ("/livez", 503): 1,
            ("/livez", 200): 1,
            ("", 404): 1,
        }

    asyncio.run(scenario())


def test_the_headers_are_these(get: Any, until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        node = Node()
        (port,) = free_ports(1)
        async with running(node.server(port).run()):
            await until(lambda: bool(node.problems))
            reply = await get(port, "/livez")
            assert reply.headers.pop("Date")
            assert reply.headers == {
                "Content-Type": "application/json",
                "X-Content-Type-Options": "nosniff",
                "Server": "nodeagent",
                "Content-Length": str(len(reply.body)),
                "Connection": "close",
            }
            head = await get(port, "/livez", method="HEAD")
            assert (head.status, head.body) == (200, b"")
            assert (await get(port, "/livez", method="POST")).status == 200

    asyncio.run(scenario())


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_wildcard_answers_in_both_families(host: str, get: Any, until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        node = Node()
        (port,) = free_ports(1)
        async with running(node.server(port, host).run()):
            await until(lambda: bool(node.problems))
            assert (await get(port, "/livez", host="127.0.0.1")).status == 200
            assert (await get(port, "/livez", host="::1")).status == 200

    asyncio.run(scenario())


def test_a_port_in_use_is_reported_and_retried(get: Any, until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        node = Node()
        (port,) = free_ports(1)
        with listening_socket("127.0.0.1", port):
            async with running(node.server(port).run()):
                await until(lambda: len(node.problems) >= 2)
        detail = f"cannot listen on 127.0.0.1:{port}: Address already in use; tried again every 0.02 seconds"
        assert node.problems[0] == (Problem("healthz server", "FailedToStartProxierHealthcheck", detail),)

        node.problems.clear()
        blocker = listening_socket("127.0.0.1", port)
        async with running(node.server(port).run()):
            await until(lambda: bool(node.problems))
            blocker.close()
            await until(lambda: node.problems[-1] == ())
            assert (await get(port, "/livez")).status == 200

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_fatal_when_it_shall_be(free_ports: Any) -> None:
    async def scenario() -> None:
        node = Node()
        (port,) = free_ports(1)
        with listening_socket("127.0.0.1", port), pytest.raises(BindFailed, match=r"Address already in use$"):
            await node.server(port, hard_fail=True).run()
        assert len(node.problems) == 1

    asyncio.run(scenario())


def test_the_end_closes_the_port_and_every_connection(until: Any, running: Any, free_ports: Any) -> None:
    async def scenario() -> None:
        node = Node()
        (port,) = free_ports(1)
        async with running(node.server(port).run()):
            await until(lambda: bool(node.problems))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: probe\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                await reader.read()
        writer.close()
        listening_socket("127.0.0.1", port).close()

    asyncio.run(scenario())


async def listening(listeners: HttpListeners) -> int:
    opened = await listeners.listen(listening_socket("127.0.0.1", 0))
    port: int = opened.sockets[0].getsockname()[1]
    return port


def test_a_client_that_says_nothing_is_hung_up_on() -> None:
    async def scenario() -> None:
        listeners = HttpListeners(lambda _: GREETING, request_seconds=0.05)
        port = await listening(listeners)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HT")
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        await listeners.close()

    asyncio.run(scenario())


def test_a_client_that_made_a_request_may_stay() -> None:
    async def scenario() -> None:
        listeners = HttpListeners(lambda _: GREETING, request_seconds=0.05)
        port = await listening(listeners)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: probe\r\n\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.06)  # beyond the deadline of the first request
        writer.close()
        await listeners.close()

    asyncio.run(scenario())


def test_idle_connections_do_not_keep_others_out(get: Any) -> None:
    """With every place taken, a new client is answered, and the connection goes that was idle for the longest."""

    async def scenario() -> None:
        listeners = HttpListeners(
            lambda _: GREETING, limits=ConnectionLimits(strangers_per_address=2, strangers=3, total=4)
        )
        first, second = await listening(listeners), await listening(listeners)
        idle = [await asyncio.open_connection("127.0.0.1", first) for _ in range(2)]
        for _ in range(20):
            assert (await get(first)).status == 200
        async with asyncio.timeout(60):
            assert await idle[0][0].read() == b""
        held = [await asyncio.open_connection("127.0.0.1", second) for _ in range(2)]
        for _, writer in (*idle, *held):
            writer.close()
        await listeners.close()

    asyncio.run(scenario())


def test_a_flood_at_one_port_leaves_the_connections_of_another_alone(get: Any) -> None:
    async def scenario() -> None:
        listeners = HttpListeners(
            lambda _: GREETING, limits=ConnectionLimits(strangers_per_address=8, strangers=8, total=10)
        )
        quiet, flooded = await listening(listeners), await listening(listeners)
        reader, writer = await asyncio.open_connection("127.0.0.1", quiet)
        writer.write(b"GET / HTTP/1.1\r\nHost: probe\r\n\r\n")
        await reader.readuntil(b"hello")
        flood = [await asyncio.open_connection("127.0.0.1", flooded) for _ in range(100)]
        assert (await get(flooded)).status == 200
        writer.write(b"GET / HTTP/1.1\r\nHost: probe\r\n\r\n")
        async with asyncio.timeout(60):
            await reader.readuntil(b"hello")
        for _, other in (*flood, (reader, writer)):
            other.close()
        await listeners.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /aaa\x01 HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\n\x1b[31mred: x\r\n\r\n",
        b"GET / HTTP/9.9\r\nContent-Length: aaa\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
    ],
)
def test_nothing_that_a_stranger_sends_is_logged(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        listeners = HttpListeners(lambda _: GREETING, request_seconds=0.2)
        port = await listening(listeners)
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            with suppress(ConnectionError):
                async with asyncio.timeout(60):
                    await reader.read()
            writer.close()
        await listeners.close()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []
    reported = [record for record in caplog.records if record.name.startswith("nodeagent")]
    assert len(reported) <= 1
    assert not any("aaa" in record.getMessage() or "red" in record.getMessage() for record in reported)


def test_a_refusal_tells_nothing_and_repeats_nothing() -> None:
    async def scenario() -> None:
        listeners = HttpListeners(lambda _: GREETING)
        reader, writer = await asyncio.open_connection("127.0.0.1", await listening(listeners))
        writer.write(b"GET /secret HTTP/1.1\rGET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        await listeners.close()
        assert answer.startswith(b"HTTP/1.0 400 Bad Request\r\n")
        assert b"Server: nodeagent\r\n" in answer
        assert answer.endswith(b"\r\n\r\nbad request\n")

    asyncio.run(scenario())


def test_an_answer_that_fails_is_our_fault_and_logged_once(get: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request) -> Response:
        raise ZeroDivisionError

    async def scenario() -> None:
        listeners = HttpListeners(fail)
        port = await listening(listeners)
        for _ in range(3):
            assert (await get(port, "/secret")).status == 500
        await listeners.close()

    asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "bytes_sent", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000 + b"\r\n\r\n"]
)  # fmt: skip
def test_nonsense_does_not_disturb_others(bytes_sent: bytes, get: Callable[..., Awaitable[Any]]) -> None:
    async def scenario() -> None:
        listeners = HttpListeners(lambda _: GREETING, request_seconds=0.5)
        port = await listening(listeners)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes_sent)
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                await reader.read()
        writer.close()
        assert (await get(port)).body == b"hello"
        await listeners.close()

    asyncio.run(scenario())


def test_the_answer_knows_where_it_was_asked() -> None:
    async def scenario() -> None:
        asked: list[Request] = []

        def answer(request: Request) -> Response:
            asked.append(request)
            return GREETING

        listeners = HttpListeners(answer)
        opened = [await listeners.listen(listening_socket(address, 0)) for address in ("127.0.0.1", "::1")]
        ports = [listener.sockets[0].getsockname()[1] for listener in opened]
        for host, port in zip(("127.0.0.1", "::1"), ports, strict=True):
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as client:
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, (host, port))
                await loop.sock_sendall(client, b"GET /x?y=z HTTP/1.1\r\nHost: probe\r\n\r\n")
                await loop.sock_recv(client, 1000)
        await listeners.close()
        assert asked == [
            Request("/x", family, port, "GET", "y=z", "probe") for family, port in zip(Family, ports, strict=True)
        ]

    asyncio.run(scenario())
