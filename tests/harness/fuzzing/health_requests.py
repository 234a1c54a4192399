"""What strangers send to a health port, over real connections: an answer below 500 or the end, and nothing logged."""

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime

from nodeagent.model.addresses import Family
from nodeagent.proxy.observe.health_answers import HealthAnswers
from nodeagent.proxy.observe.health_monitor import HealthMonitor
from nodeagent.runtime.serving.http import HttpListeners, listening_socket
from tests.harness.fuzzing.mutation import Target

SEEDS = (
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /livez?verbose HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nUser-Agent: kube-probe/1.36\r\nConnection: close\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
    b"PUT /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET http://a:1/livez HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nCookie: a=b\r\n\r\n",
)
TOKENS = [
    b"\r\n", b"\n", b"\r", b"\x00", b"\x01", b"\x1b[31m", b"\xff", b"\xc3\xa4", b"%00", b"%", b"%2f%2e%2e", b"//", b"?", b"#", b"[", b"]",
    b"@", b" ", b"\t", b":", b"HTTP/9.9", b"HTTP/2.0", b"OPTIONS * ", b"CONNECT a:1 ", b"TRACE / ", b"Host: [", b"Host: a\r\nHost: b",
    b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked", b"Content-Encoding: gzip",
    b"Content-Encoding: br", b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"x" * 9000, b"GET http://[::1 HTTP/1.1\r\n", b"\x16\x03\x01\x02\0\1",
    b"Expect: nothing", b"Content-Type: multipart/form-data; boundary=", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b":99999/", b"http://",
]  # fmt: skip


class _Queue:
    oldest: float | None = None


class _Heard(logging.Handler):
    """Collects all above debug."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def _ask(port: int, data: bytes) -> tuple[bytes, bytes]:
    """All answers to the bytes, and that to a probe which comes after them on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        probed = await _probe(port)
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(10):
            return await reader.read(), probed
    except ConnectionError:
        return b"", probed
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _probe(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(SEEDS[1])
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def _attack(data: bytes) -> None:
    def now() -> float:
        return 100.0

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    monitor = HealthMonitor(_Queue(), [Family.IPV4], timeout_seconds=60, clock=now)
    answers = HealthAnswers(
        monitor, clock=now, wall=lambda: datetime(2026, 1, 1, tzinfo=UTC), node_eligible=lambda: True
    )
    listeners = HttpListeners(answers.answer, request_seconds=0.2)
    port = (await listeners.listen(listening_socket("127.0.0.1", 0))).sockets[0].getsockname()[1]
    try:
        answers_given, probed = await _ask(port, data)
        assert all(answer[2:5] < b"500" for answer in answers_given.split(b"HTTP/1.")[1:]), answers_given
        assert b"aiohttp" not in answers_given
        assert probed.startswith(b"HTTP/1.1 200"), "others are served"
    finally:
        await listeners.close()
    assert failures == []
    assert len(answers.counts) <= 3


def check(data: bytes) -> None:
    heard = _Heard()
    logging.getLogger().addHandler(heard)
    try:
        asyncio.run(_attack(data))
    finally:
        logging.getLogger().removeHandler(heard)
    assert heard.lines == []


TARGETS = (Target("requests to a health port", SEEDS, TOKENS, check),)
