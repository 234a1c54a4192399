"""One question to one server: by UDP and, if it does not fit or somebody else answers too, by TCP."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from nodeagent.names.upstream.limits import AskLimits
from nodeagent.names.upstream.reply import Doubt, Reply, read_reply
from nodeagent.names.upstream.transport import Transport
from nodeagent.names.upstream.upstream_address import Server
from nodeagent.names.upstream.upstream_health import Health
from nodeagent.names.upstream.upstream_question import Asked, spelled
from nodeagent.wire.dns.codes import Rcode


class NoAnswerError(Exception):
    """What came by TCP is no answer to our question."""


class Conversation:
    """chance: a random number below its argument, from a source that cannot be guessed.

    mix_case: spell questions in random letter case and want it back (0x20). A server that does not keep it is asked
    by TCP.
    """

    def __init__(
        self,
        transport: Transport,
        health: Health,
        limits: AskLimits,
        *,
        chance: Callable[[int], int],
        mix_case: bool,
    ) -> None:
        self._transport = transport
        self._health = health
        self._limits = limits
        self._chance = chance
        self._mix_case = mix_case

    async def ask(self, server: Server, asked: Asked, *, stream: bool = False) -> Reply:
        """The server's answer, whatever its rcode. stream: by TCP from the start. Has no end of its own.

        Raises OSError or NoAnswerError. A server that does not know EDNS is asked without from then on (RFC 6891, 7).
        """
        loop = asyncio.get_running_loop()
        edns = self._health.takes_edns(server, loop.time())
        reply = await self._ask(server, asked, stream, self._limits.payload if edns else 0)
        if edns and not reply.edns and reply.rcode in (Rcode.FORMERR, Rcode.NOTIMP):
            self._health.plain(server, loop.time())
            reply = await self._ask(server, asked, stream, 0)
        return reply

    async def _ask(self, server: Server, asked: Asked, stream: bool, payload: int) -> Reply:
        if not stream:
            reply = await self._by_datagram(server, asked, payload)
            if reply is not None and not reply.truncated:
                return reply
        ident = self._chance(1 << 16)
        packet = await self._transport.stream(server, asked.packet(ident, asked.question, payload))
        answer = read_reply(packet, ident, asked.question)
        if isinstance(answer, Doubt) or answer.truncated:
            raise NoAnswerError(f"{server} sent something else by TCP")
        return answer

    async def _by_datagram(self, server: Server, asked: Asked, payload: int) -> Reply | None:
        """None when TCP is wanted: too many strangers, or the answer is in other letters than the question."""
        ident = self._chance(1 << 16)
        question = asked.question
        if self._mix_case:
            question = spelled(question, self._chance(1 << len(asked.name)))
        strangers = 0
        packet = asked.packet(ident, question, payload)
        async with aclosing(self._transport.datagrams(server, packet)) as datagrams:
            async for datagram in datagrams:
                reply = read_reply(datagram, ident, question, exact=self._mix_case)
                if isinstance(reply, Reply):
                    return reply
                strangers += 1
                if reply is Doubt.SPELLING or strangers >= self._limits.strangers:
                    return None
        return None
