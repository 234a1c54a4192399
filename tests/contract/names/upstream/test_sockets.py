"""What virtual time cannot show: ports, refusals, streams and descriptors of real sockets on loopback."""

import asyncio
import os
import socket
from itertools import pairwise
from typing import cast

import dns.message
import pytest

from nodeagent.names.upstream.limits import AskLimits, Limits
from nodeagent.names.upstream.upstream_address import Server
from tests.unit.names.upstream.scripted import Packets, code, query, response, says, silent, texts

from .loopback import Ourselves, Resolver, ask, asking, until

WWW = "www.example.com. 300 IN A 192.0.2.53"
SHORT = Limits(ask=AskLimits(hedge=0.02, again=0.05, stream=0.1, total=0.3))


def truncated(asked: dns.message.Message, stream: bool) -> Packets:
    return [(0, response(asked, flags="QR RD RA TC").to_wire())]


def echo(asked: dns.message.Message, stream: bool) -> Packets:
    return [(0, response(asked, [f"{asked.question[0].name} 0 IN A 192.0.2.1"]).to_wire())]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_both_families_are_asked(address: str) -> None:
    async def main() -> None:
        resolver = Resolver(says(WWW, after=0))
        async with resolver.listening(address) as server, asking([server]) as upstream:
            assert texts(await ask(upstream)) == [WWW]

    asyncio.run(main())


def test_every_question_has_its_own_random_port_and_id() -> None:
    async def main() -> None:
        resolver = Resolver(echo)
        async with resolver.listening() as server, asking([server]) as upstream:
            for number in range(40):
                assert code(await ask(upstream, f"n{number}.example.com.")) == "NOERROR"
        ports = [port for port, _, _ in resolver.seen]
        idents = [ident for _, ident, _ in resolver.seen]
        for values in (ports, idents):
            steps = [later - earlier for earlier, later in pairwise(values)]
            assert len(set(values)) > 35
            assert len(set(steps)) > 30, "not one after the other"

    asyncio.run(main())


def test_an_answer_from_another_address_is_ignored() -> None:
    """The forger knows id and port, which is more than it could, and is faster."""

    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            forger.bind(("127.0.0.2", 0))
            resolver = Resolver(says(WWW, after=0.1))
            honest = resolver.datagram_received

            def overheard(data: bytes, addr: tuple[str, int]) -> None:
                lie = response(dns.message.from_wire(data), ["www.example.com. 300 IN A 192.0.2.66"]).to_wire()
                forger.sendto(lie, addr)
                honest(data, addr)

            resolver.datagram_received = overheard  # type: ignore[method-assign]
            async with resolver.listening() as server, asking([server]) as upstream:
                assert texts(await ask(upstream)) == [WWW]

    asyncio.run(main())


def test_the_same_lie_from_the_right_address_is_accepted() -> None:
    async def main() -> None:
        def lie_first(asked: dns.message.Message, stream: bool) -> Packets:
            lie = response(asked, ["www.example.com. 300 IN A 192.0.2.66"]).to_wire()
            return [(0, lie), (0.1, response(asked, [WWW]).to_wire())]

        async with Resolver(lie_first).listening() as server, asking([server]) as upstream:
            assert texts(await ask(upstream)) == ["www.example.com. 300 IN A 192.0.2.66"]

    asyncio.run(main())


def test_a_refusal_of_the_kernel_costs_no_time() -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
            closed.bind(("127.0.0.1", 0))
            nobody = Server("127.0.0.1", closed.getsockname()[1])
        patient = Limits(ask=AskLimits(hedge=15.0, again=16.0, stream=17.0, total=20.0))
        async with Resolver(says(WWW, after=0)).listening() as server, asking([nobody, server], patient) as upstream:
            began = asyncio.get_running_loop().time()
            assert texts(await ask(upstream)) == [WWW]
            assert asyncio.get_running_loop().time() - began < 10

    asyncio.run(main())


def test_an_answer_that_does_not_fit_comes_by_tcp() -> None:
    many = [f"www.example.com. 300 IN TXT {'x' * 250}{number}" for number in range(100, 300)]
    quoted = [line.replace("TXT ", 'TXT "') + '"' for line in many]

    async def main() -> None:
        def behaviour(asked: dns.message.Message, stream: bool) -> Packets:
            return [(0, response(asked, quoted).to_wire(max_size=65535))] if stream else truncated(asked, stream)

        resolver = Resolver(behaviour)
        async with resolver.listening() as server, asking([server]) as upstream:
            assert len(texts(await ask(upstream, kind="TXT"))) == 200
        assert resolver.streams == 1

    asyncio.run(main())


async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One byte now and then of a message that is said to be long."""
    writer.write(b"\xff\xff")
    while True:
        writer.write(b"\0")
        await writer.drain()
        await asyncio.sleep(0.005)


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Messages without end that answer nothing."""
    while True:
        writer.write(b"\0\x20" + b"\xff" * 32)
        await writer.drain()
        await asyncio.sleep(0)


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Half a message."""
    writer.write(b"\0\x40" + b"\0" * 10)
    await writer.drain()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Keep the connection."""
    await reader.read()


@pytest.mark.parametrize("stream", [trickle, flood, hang_up, say_nothing], ids=lambda stream: stream.__name__)
def test_a_stream_that_does_not_answer_ends_with_the_question(stream: object) -> None:
    async def main() -> None:
        resolver = Resolver(truncated, stream)  # type: ignore[arg-type]
        async with resolver.listening() as server, asking([server], SHORT) as upstream:
            async with asyncio.timeout(60):
                assert code(await ask(upstream)) == "SERVFAIL"
        assert resolver.streams >= 1

    asyncio.run(main())


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_descriptor_stays_open() -> None:
    async def main() -> None:
        slow, quick, cut = Resolver(silent), Resolver(says(WWW, after=0.05)), Resolver(truncated, say_nothing)
        async with slow.listening() as one, quick.listening() as two, cut.listening() as three:
            async with asking([one, two, three], SHORT) as upstream:
                before = open_descriptors()
                answers = [ask(upstream, f"n{number}.example.com.") for number in range(30)]
                leaving = [asyncio.ensure_future(ask(upstream, f"m{number}.example.com.")) for number in range(10)]
                await asyncio.sleep(0.01)
                assert open_descriptors() > before, "else nothing is shown"
                for client in leaving:
                    client.cancel()
                await asyncio.gather(*answers)
                await until(lambda: not upstream._under_way)
                await until(lambda: open_descriptors() <= before + cut.streams)
            await until(lambda: open_descriptors() <= before)

    asyncio.run(main())


def test_a_dead_server_is_asked_last_and_found_again() -> None:
    async def main() -> None:
        good = Resolver(echo)
        async with good.listening() as alive:
            async with Resolver(echo).listening() as dying:
                pass
            async with asking([dying, alive]) as upstream:
                for number in range(4):
                    assert code(await ask(upstream, f"n{number}.example.com.")) == "NOERROR"
                assert [state.up for state in upstream.servers] == [False, True]
                back = Resolver(echo)
                async with back.listening(dying.address, dying.port):
                    await until(lambda: upstream.servers[0].up)
                    assert code(await ask(upstream, "again.example.com.")) == "NOERROR"
                    assert [name for _, _, name in back.seen] == ["again.example.com."]

    asyncio.run(main())


class Forwarder(asyncio.DatagramProtocol):
    """A resolver of the node that is configured to ask us: it passes every query on and every answer back."""

    def __init__(self) -> None:
        self.passed = 0
        self.onward: tuple[str, int] = ("127.0.0.1", 1)
        self._clients: dict[int, tuple[str, int]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if data[2] & 0x80:
            ident = int.from_bytes(data[:2], "big") ^ 0xFFFF
            self.transport.sendto(ident.to_bytes(2, "big") + data[2:], self._clients[ident])
            return
        self.passed += 1
        ident = int.from_bytes(data[:2], "big")
        self._clients[ident] = addr
        self.transport.sendto((ident ^ 0xFFFF).to_bytes(2, "big") + data[2:], self.onward)


def test_a_loop_through_another_forwarder_is_found_and_left() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        forwarder, ourselves = Forwarder(), Ourselves()
        sending, _ = await loop.create_datagram_endpoint(lambda: forwarder, ("127.0.0.1", 0))
        taking, _ = await loop.create_datagram_endpoint(lambda: ourselves, ("127.0.0.1", 0))
        forwarder.onward = taking.get_extra_info("sockname")
        circle = Server(*sending.get_extra_info("sockname"))
        async with Resolver(says(WWW, after=0)).listening() as good, asking([circle, good]) as upstream:
            ourselves.upstream = upstream
            await until(lambda: upstream.servers[0].loops)
            passed = forwarder.passed
            assert texts(await ask(upstream)) == [WWW]
            assert passed == forwarder.passed == 1
            assert [state.loops for state in upstream.servers] == [True, False]
        sending.close()
        taking.close()

    asyncio.run(main())


def test_each_client_gets_its_answer_in_any_letter_case() -> None:
    async def main() -> None:
        async with Resolver(echo).listening() as server, asking([server]) as upstream:
            clients = [query(f"N{number % 10}.example.com.") for number in range(200)]
            answers = await asyncio.gather(*(upstream.resolve(client.to_wire()) for client in clients))
            for client, answer in zip(clients, map(dns.message.from_wire, answers), strict=True):
                assert client.is_response(answer)
                assert texts(answer) == [f"{client.question[0].name} 0 IN A 192.0.2.1"]

    asyncio.run(main())
