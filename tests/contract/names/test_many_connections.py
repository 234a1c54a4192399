"""Connections by TCP: one client that opens many keeps nobody out. Clients are addresses of loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import dns.message
import dns.rcode
import pytest

from nodeagent.names.feed.feed_messages import Begin, End, Settings
from nodeagent.names.server import tcp
from nodeagent.names.server.fed_state import ReceivedState
from nodeagent.names.server.front import Front, Tasks
from nodeagent.names.server.tcp import MOST_CONNECTIONS, TcpListener
from nodeagent.names.shares import Client
from tests.harness.dns.no_upstream import NoUpstream
from tests.harness.free_ports import free_ports

GREEDY, OTHER = "127.0.0.2", "127.0.0.3"
PATIENCE_SECONDS = 60.0
LOOKUPS = 40
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LongAnswers(NoUpstream):
    """Answers that come together and are long."""

    async def resolve(self, query: bytes, client: Client) -> bytes:
        await asyncio.sleep(0.01)
        return query[:2] + b"\x81\x80" + query[4:] + bytes(60_000)


class Server:
    """What answers, and its clients' connections."""

    def __init__(self, listener: TcpListener, port: int, stack: AsyncExitStack) -> None:
        self.listener = listener
        self._port = port
        self._stack = stack

    async def connect(self, client: str) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(client, 0))
        self._stack.callback(writer.close)
        return reader, writer

    async def until_open(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.listener.connections != count:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def no_client_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine needs longer to open hundreds of connections than a client may take to ask."""
    for name in ("STALLED_SECONDS", "IDLE_SECONDS"):
        monkeypatch.setattr(tcp, name, 2 * PATIENCE_SECONDS)


@asynccontextmanager
async def a_server() -> AsyncIterator[Server]:
    fed = ReceivedState(Settings())
    for message in (Begin(), End(1)):
        fed.take(message)
    port = free_ports(1)[0]
    async with AsyncExitStack() as stack:
        sock = stack.enter_context(socket.create_server(("127.0.0.1", port)))
        listener = TcpListener(sock, Front(fed.answers, LongAnswers()), Tasks())
        await listener.start()
        stack.push_async_callback(listener.stop)
        yield Server(listener, port, stack)


def run(scene: Callable[[Server], Coroutine[None, None, None]]) -> None:
    async def whole() -> None:
        async with a_server() as server:
            await scene(server)

    asyncio.run(whole())


async def ask(connection: Connection, name: str = "cluster.local.") -> bool:
    """Whether a query is answered."""
    reader, writer = connection
    packet = dns.message.make_query(name, "SOA").to_wire()
    with suppress(OSError, asyncio.IncompleteReadError):
        writer.write(len(packet).to_bytes(2, "big") + packet)
        async with asyncio.timeout(PATIENCE_SECONDS):
            size = int.from_bytes(await reader.readexactly(2), "big")
            return dns.message.from_wire(await reader.readexactly(size)).rcode() == dns.rcode.NOERROR
    return False


def test_a_client_with_all_connections_keeps_nobody_out() -> None:
    async def scene(server: Server) -> None:
        held = [await server.connect(GREEDY) for _ in range(MOST_CONNECTIONS)]
        await server.until_open(MOST_CONNECTIONS)
        assert [await ask(await server.connect(OTHER)) for _ in range(LOOKUPS)] == [True] * LOOKUPS
        assert server.listener.connections == MOST_CONNECTIONS
        assert await ask(held[-1]), "only as many are ended as others need"

    run(scene)


def test_the_connection_that_was_idle_for_the_longest_is_ended() -> None:
    async def scene(server: Server) -> None:
        held = [await server.connect(GREEDY) for _ in range(MOST_CONNECTIONS - 1)]
        await server.until_open(MOST_CONNECTIONS - 1)
        assert await ask(held[0])
        theirs = await server.connect(OTHER)
        await server.until_open(MOST_CONNECTIONS)
        more = await server.connect(GREEDY)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await held[1][0].read(1) == b""
        assert [await ask(one) for one in (held[0], held[2], theirs, more)] == [True] * 4

    run(scene)


def test_places_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "MOST_CONNECTIONS", 4)

    async def scene(server: Server) -> None:
        for _ in range(5):
            held = [await server.connect(GREEDY) for _ in range(6)]
            await server.until_open(4)
            for _, writer in held:
                writer.close()
            await server.until_open(0)
        assert await ask(await server.connect(GREEDY))

    run(scene)


@pytest.mark.parametrize("name", ["cluster.local.", "example.com."], ids=["ours", "upstream"])
def test_a_client_that_reads_nothing_loses_its_connection(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What it does not read is bounded: by the time it may take for our own answers, by bytes for those of upstream, which
    come together."""
    if name == "cluster.local.":
        monkeypatch.setattr(tcp, "IDLE_SECONDS", 0.5)

    async def scene(server: Server) -> None:
        _, writer = await server.connect(GREEDY)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        packet = dns.message.make_query(name, "SOA").to_wire()
        data = (len(packet).to_bytes(2, "big") + packet) * 100
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.until_open(1)
            while server.listener.connections:
                if not writer.transport.get_write_buffer_size():
                    with suppress(OSError):
                        writer.write(data)
                await asyncio.sleep(0.001)

    run(scene)


def test_a_message_longer_than_any_query_ends_the_connection() -> None:
    async def scene(server: Server) -> None:
        reader, writer = await server.connect(GREEDY)
        writer.write(b"\xff\xff" + b"x" * 5000)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with suppress(ConnectionError):
                assert await reader.read(1) == b""
        await server.until_open(0)

    run(scene)
