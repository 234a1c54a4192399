"""Servers that are new, down or lead back to us are asked a name of our own, until they answer it."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from nodeagent.names.upstream.conversation import NoAnswerError
from nodeagent.names.upstream.limits import HealthLimits
from nodeagent.names.upstream.race import Asks
from nodeagent.names.upstream.upstream_address import Server
from nodeagent.names.upstream.upstream_health import Health
from nodeagent.names.upstream.upstream_question import Asked, question_of
from nodeagent.wire.dns.codes import RecordType
from nodeagent.wire.dns.domain_names import from_text

PROBE_ZONE = from_text("loop-probe.nodeagent.invalid")
"""Below a name that nobody can have (RFC 6761, 6.4): every resolver knows at once that it does not exist."""

logger = logging.getLogger(__name__)


class Probes:
    """chance: a random number below its argument."""

    def __init__(self, asks: Asks, health: Health, limits: HealthLimits, chance: Callable[[int], int]) -> None:
        self._asks = asks
        self._health = health
        self._limits = limits
        self._chance = chance
        self._out: dict[bytes, Server] = {}
        self._changed = asyncio.Event()

    def know(self, servers: Iterable[Server]) -> None:
        """Watch over these servers from now on."""
        self._health.know(tuple(servers), asyncio.get_running_loop().time())
        self._changed.set()

    def wake(self) -> None:
        """A probe may be due earlier than it was."""
        self._changed.set()

    def came_back(self, name: bytes) -> bool:
        """Whether a client asks for the name of one of our probes: then the server it went to leads back to us."""
        server = self._out.pop(name, None) if name.endswith(PROBE_ZONE) else None
        if server is None:
            return False
        if self._health.loops(server, asyncio.get_running_loop().time()):
            logger.error("upstream %s sends our own questions back to us; it is not asked", server)
        return True

    async def run(self) -> None:
        """Probes the servers that are due. Ends only by cancellation."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                for server in self._health.due(loop.time()):
                    group.create_task(self._probe(server), name=f"probe {server}")
                following = self._health.next_probe()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if following is None else max(0.0, following - loop.time())):
                        await self._changed.wait()

    async def _probe(self, server: Server) -> None:
        label = f"{self._chance(1 << 128):032x}".encode()
        name = bytes((len(label),)) + label + PROBE_ZONE
        self._out[name] = server
        try:
            async with asyncio.timeout(self._limits.probe):
                await self._asks.ask(server, Asked(question_of(name, RecordType.TXT)))
            answered = True
        except (OSError, NoAnswerError):  # TimeoutError is an OSError
            answered = False
        if self._out.pop(name, None) is not None:
            if answered:
                self._health.answered(server)
            else:
                self._health.probe_failed(server, asyncio.get_running_loop().time())
        self._changed.set()
