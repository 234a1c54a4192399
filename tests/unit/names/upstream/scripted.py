"""Servers that answer by script, in virtual time, and questions and answers written as people write them."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rrset

from nodeagent.names.shares import client_at
from nodeagent.names.upstream.limits import Limits
from nodeagent.names.upstream.node_resolvers import FixedResolvers, Resolvers
from nodeagent.names.upstream.resolve import Upstream
from nodeagent.names.upstream.stub_zones import StubZones
from nodeagent.names.upstream.upstream_address import Server
from tests.harness.effort import SEED
from tests.unit.proxy.engine.virtual_time import run_in_virtual_time

ONE, TWO, THREE = Server("192.0.2.1"), Server("192.0.2.2"), Server("192.0.2.3", 5353)
SOA = "example.com. 3600 IN SOA ns1.example.com. root.example.com. 1 7200 3600 1209600 300"

Packets = Sequence[tuple[float, bytes]]
"""Seconds after the query, and what comes then."""
Behaviour = Callable[[dns.message.Message, bool], Packets]
"""The query and whether it came by TCP."""


def query(name: str = "www.example.com.", kind: str = "A", **options: Any) -> dns.message.Message:
    """A client's query, by dnspython's options."""
    flags = options.pop("flags", dns.flags.RD)
    message = dns.message.make_query(name, kind, **options)
    message.flags = flags
    return message


def response(
    to: dns.message.Message,
    answer: Sequence[str] = (),
    authority: Sequence[str] = (),
    additional: Sequence[str] = (),
    *,
    rcode: str = "NOERROR",
    flags: str = "QR RD RA",
) -> dns.message.Message:
    """A resolver's answer of these records, as lines of a zone file."""
    message = dns.message.make_response(to, recursion_available=True)
    message.flags = dns.flags.from_text(flags)
    message.set_rcode(dns.rcode.from_text(rcode))
    for section, lines in ((message.answer, answer), (message.authority, authority), (message.additional, additional)):
        section.extend(map(record, lines))
    return message


@lru_cache(1024)
def record(line: str) -> dns.rrset.RRset:
    """Of a line of a zone file. Servers say the same few again and again, and dnspython takes longer to read one than to send it."""
    owner, ttl, _, kind, rdata = line.split(" ", 4)
    return dns.rrset.from_text(owner, int(ttl), "IN", kind, rdata)


def says(*answer: str, after: float = 0.01, **parts: Any) -> Behaviour:
    """The same records to everybody."""
    return lambda asked, _: [(after, response(asked, answer, **parts).to_wire(max_size=65535))]


def silent(asked: dns.message.Message, stream: bool) -> Packets:
    return []


def refused(asked: dns.message.Message, stream: bool) -> Packets:
    """Nobody listens there."""
    raise ConnectionRefusedError(111, "refused")


def poisoned(asked: dns.message.Message) -> dns.message.Message:
    return response(asked, [f"{asked.question[0].name} 300 IN A 192.0.2.66"])


def with_another_id(asked: dns.message.Message) -> bytes:
    lie = poisoned(asked)
    lie.id ^= 1
    return lie.to_wire()


def of_another_name(asked: dns.message.Message) -> bytes:
    other = query("www.example.net.")
    other.id = asked.id
    return poisoned(other).to_wire()


LIES: tuple[Callable[[dns.message.Message], bytes], ...] = (
    with_another_id,
    of_another_name,
    lambda asked: poisoned(asked).to_wire()[:-2],
    lambda _: b"\xff" * 40,
)
"""Answers to a query that must not be believed; all are faster than the server."""


class Script:
    """A `Transport`. seen: time, server, query, whether by TCP. Behaviours may be changed while it is in use.

    Probes for a name of our own are answered at once by servers that answer at all, and not noted, unless `probed` says otherwise;
    with `answers_probes` off they are questions like others.
    lies: the share of queries by UDP to which one of LIES comes first.
    """

    def __init__(self, *, lies: float = 0.1, **behaviours: Behaviour) -> None:
        self._lies = lies
        self._chance = random.Random(SEED)
        self.behaviours = {{"one": ONE, "two": TWO, "three": THREE}[name]: b for name, b in behaviours.items()}
        self.seen: list[tuple[float, Server, dns.message.Message, bool]] = []
        self.probes: list[tuple[float, Server, bytes]] = []
        self.probed: Callable[[Server, bytes], Coroutine[None, None, None]] | None = None
        self.answers_probes = True

    def asked(self) -> list[tuple[float, str, str]]:
        """When, whom, how: for comparing."""
        names = {ONE: "one", TWO: "two", THREE: "three"}
        return [(round(at, 3), names[server], "tcp" if stream else "udp") for at, server, _, stream in self.seen]

    async def _packets(self, server: Server, packet: bytes, stream: bool) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        message = dns.message.from_wire(packet)
        began = loop.time()
        behaviour = self.behaviours[server]
        if "loop-probe" in message.question[0].name.to_text().lower():
            self.probes.append((began, server, packet))
            if self.probed:
                await self.probed(server, packet)
            if self.answers_probes and behaviour not in (silent, refused):
                yield response(message, rcode="NXDOMAIN").to_wire()
                return
        else:
            self.seen.append((began, server, message, stream))
        packets = behaviour(message, stream)
        if packets and not stream and self._chance.random() < self._lies:
            yield self._chance.choice(LIES)(message)
        for after, reply in packets:
            await asyncio.sleep(began + after - loop.time())
            yield reply
        await asyncio.Event().wait()

    def datagrams(self, server: Server, packet: bytes) -> AsyncGenerator[bytes, None]:
        return self._packets(server, packet, False)

    async def stream(self, server: Server, packet: bytes) -> bytes:
        return await anext(self._packets(server, packet, True))


class Scene:
    """A running `Upstream` in front of a script."""

    def __init__(self, script: Script, upstream: Upstream) -> None:
        self.script = script
        self.upstream = upstream

    async def ask(self, to: dns.message.Message | None = None, client: str = "") -> dns.message.Message:
        """What a client gets, read by dnspython, which checks the form."""
        to = to or query()
        return dns.message.from_wire(await self.upstream.resolve(to.to_wire(), client_at(client)))

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()


def play(
    script: Script,
    scenario: Callable[[Scene], Coroutine[None, None, None]],
    *,
    servers: Sequence[Server] | None = None,
    zones: dict[str, Sequence[Server]] | None = None,
    resolvers: Resolvers | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> None:
    """Run a scenario in virtual time; the probes of the beginning are over when it starts."""

    async def main() -> None:
        upstream = Upstream(
            resolvers or FixedResolvers(servers if servers is not None else tuple(script.behaviours)),
            StubZones(zones or {}),
            limits=limits or Limits(),
            transport=script,
            chance=random.Random(1).randrange,
            **options,
        )
        running = asyncio.get_running_loop().create_task(upstream.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        try:
            await scenario(Scene(script, upstream))
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    run_in_virtual_time(main())


def texts(message: dns.message.Message) -> list[str]:
    """The records of the answer section."""
    return [line for rrset in message.answer for line in rrset.to_text().splitlines()]


def code(message: dns.message.Message) -> str:
    return dns.rcode.to_text(message.rcode())
