"""Resolvers on loopback that behave as a test says, and an `Upstream` with real sockets in front of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import dns.message

from nodeagent.names.upstream.limits import AskLimits, Limits
from nodeagent.names.upstream.node_resolvers import FixedResolvers
from nodeagent.names.upstream.resolve import Upstream
from nodeagent.names.upstream.stub_zones import StubZones
from nodeagent.names.upstream.upstream_address import Server
from tests.unit.names.upstream.scripted import Behaviour, query, response

Stream = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]

PATIENT = Limits(ask=AskLimits(hedge=0.1, total=20.0, stream=10.0, again=5.0))
"""For tests that must not fail because the machine is busy."""


class Resolver(asyncio.DatagramProtocol):
    """seen: source port, id and question of every query that came by UDP; streams: how many connections came."""

    def __init__(self, behaviour: Behaviour, stream: Stream | None = None) -> None:
        self._behaviour = behaviour
        self._stream = stream
        self.seen: list[tuple[int, int, str]] = []
        self.streams = 0
        self.server = Server("127.0.0.1", 1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        message = dns.message.from_wire(data)
        name = message.question[0].name.to_text()
        if "loop-probe" in name:
            self.transport.sendto(response(message, rcode="NXDOMAIN").to_wire(), addr)
            return
        self.seen.append((addr[1], message.id, name))
        loop = asyncio.get_running_loop()
        for after, reply in self._behaviour(message, False):
            loop.call_later(after, self.transport.sendto, reply, addr)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of TCP."""
        self.streams += 1
        try:
            with suppress(ConnectionError):
                if self._stream is not None:
                    await self._stream(reader, writer)
                    return
                size = int.from_bytes(await reader.readexactly(2), "big")
                message = dns.message.from_wire(await reader.readexactly(size))
                for after, reply in self._behaviour(message, True):
                    await asyncio.sleep(after)
                    writer.write(len(reply).to_bytes(2, "big") + reply)
                    await writer.drain()
        finally:
            writer.close()

    @asynccontextmanager
    async def listening(self, address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Server]:
        """On the same free port by UDP and TCP."""
        loop = asyncio.get_running_loop()
        streams = await asyncio.start_server(self.accept, address, port)
        port = streams.sockets[0].getsockname()[1]
        datagrams, _ = await loop.create_datagram_endpoint(lambda: self, (address, port))
        try:
            yield Server(address, port)
        finally:
            datagrams.close()
            streams.close()


class Ourselves(asyncio.DatagramProtocol):
    """The part of the process that takes queries, as small as can be."""

    upstream: Upstream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)
        self.tasks: set[asyncio.Task[None]] = set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        task = asyncio.ensure_future(self.answer(data, addr))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def answer(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(await self.upstream.resolve(data), addr)


@asynccontextmanager
async def asking(servers: Sequence[Server], limits: Limits = PATIENT, **options: Any) -> AsyncIterator[Upstream]:
    """An `Upstream` that runs."""
    upstream = Upstream(FixedResolvers(servers), StubZones({}), limits=limits, **options)
    running = asyncio.create_task(upstream.run())
    await asyncio.sleep(0)
    try:
        yield upstream
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def ask(
    upstream: Upstream, name: str = "www.example.com.", kind: str = "A", **options: Any
) -> dns.message.Message:
    """The answer, read by dnspython."""
    return dns.message.from_wire(await upstream.resolve(query(name, kind, **options).to_wire()))


async def until(condition: Callable[[], bool], limit: float = 20.0) -> None:
    """Return as soon as it holds."""
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
