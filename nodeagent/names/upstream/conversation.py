"""Asks one server one question: by UDP, then by TCP if the answer does not fit or other packets arrive."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from nodeagent.names.upstream.limits import AskLimits
from nodeagent.names.upstream.reply import RejectReason, Reply, read_reply
from nodeagent.names.upstream.transport import Transport
from nodeagent.names.upstream.upstream_address import Server
from nodeagent.names.upstream.upstream_health import Health
from nodeagent.names.upstream.upstream_question import Asked, spelled
from nodeagent.wire.dns.codes import Rcode


class NoAnswerError(Exception):
    """The message that came by TCP does not answer our question."""


class ServerConversation:
    """Asks servers. chance: returns an unpredictable random number below its argument.

    mix_case: spell questions in random letter case and expect it back (0x20). If a server changes the case, it is asked
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

    async def ask(self, server: Server, asked: Asked, *, stream: bool = False, whole: bool = True) -> Reply:
        """Returns the server's answer, whatever its rcode. stream: by TCP from the start. whole: asks by TCP as well if the answer
        by UDP is cut off. The caller must set a timeout.
        Raises OSError or NoAnswerError. A server that refuses EDNS is then asked without it for a while (RFC 6891, 7).
        """
        loop = asyncio.get_running_loop()
        edns = self._health.takes_edns(server, loop.time())
        reply = await self._ask(server, asked, stream, whole, self._limits.payload if edns else 0)
        if edns and not reply.edns and reply.rcode in (Rcode.FORMERR, Rcode.NOTIMP):
            self._health.mark_without_edns(server, loop.time())
            reply = await self._ask(server, asked, stream, whole, 0)
        return reply

    async def _ask(self, server: Server, asked: Asked, stream: bool, whole: bool, payload: int) -> Reply:
        if stream:
            return await self._by_stream(server, asked, payload)
        reply = await self._by_datagram(server, asked, payload)
        if reply is not None and not reply.truncated:
            return reply
        if reply is None:
            return await self._by_stream(server, asked, payload)
        loop, answers = asyncio.get_running_loop(), False
        self._health.mark_cut_off(server)
        if not whole:
            return reply
        try:
            answer = await self._by_stream(server, asked, payload)
            answers = True
        finally:  # also if cancelled because another server was faster: a later probe finds out whether TCP works
            self._health.mark_tcp(server, loop.time(), answers=answers)
        return answer

    async def _by_stream(self, server: Server, asked: Asked, payload: int) -> Reply:
        ident = self._chance(1 << 16)
        packet = await self._transport.stream(server, asked.packet(ident, asked.question, payload))
        answer = read_reply(packet, ident, asked.question)
        if isinstance(answer, RejectReason) or answer.truncated:
            raise NoAnswerError(f"{server} sent no answer to our question by TCP")
        return answer

    async def _by_datagram(self, server: Server, asked: Asked, payload: int) -> Reply | None:
        """Returns the answer by UDP; None if TCP is needed: too many wrong packets, or the letter case was changed."""
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
                if reply is RejectReason.STRANGER:
                    self._health.mark_malformed(server, asked, asyncio.get_running_loop().time())
                if reply is RejectReason.SPELLING or strangers >= self._limits.strangers:
                    return None
        return None
