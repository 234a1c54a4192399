"""Probes servers that are new, down or lead back to us with a name of our own, until they answer."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from nodeagent.names.upstream.conversation import NoAnswerError
from nodeagent.names.upstream.limits import HealthLimits
from nodeagent.names.upstream.race import CanAsk
from nodeagent.names.upstream.upstream_address import Server
from nodeagent.names.upstream.upstream_health import Health
from nodeagent.names.upstream.upstream_question import Asked
from nodeagent.wire.dns.codes import RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.query import question_of

PROBE_ZONE = from_text("loop-probe.nodeagent.invalid")
"""Under a name that cannot exist (RFC 6761, 6.4): every resolver answers at once that there is no such name."""

logger = logging.getLogger(__name__)


class Probes:
    """chance: returns a random number below its argument."""

    def __init__(self, asks: CanAsk, health: Health, limits: HealthLimits, chance: Callable[[int], int]) -> None:
        self._asks = asks
        self._health = health
        self._limits = limits
        self._chance = chance
        self._pending: dict[bytes, Server] = {}
        self._changed = asyncio.Event()

    def set_servers(self, servers: Iterable[Server]) -> None:
        """Sets the servers to watch."""
        self._health.set_servers(tuple(servers), asyncio.get_running_loop().time())
        self._changed.set()

    def wake(self) -> None:
        """Notes that a probe may be due earlier than before."""
        self._changed.set()

    def is_returned_probe(self, name: bytes) -> bool:
        """Returns whether a client asks for the name of one of our probes: then the probed server leads back to us."""
        server = self._pending.pop(name, None) if name.endswith(PROBE_ZONE) else None
        if server is None:
            return False
        if self._health.mark_loop(server, asyncio.get_running_loop().time()):
            logger.error("upstream %s sends our own questions back to us; it is not used", server)
        return True

    async def run(self) -> None:
        """Probes the servers that are due. Ends only when cancelled."""
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
        self._pending[name] = server
        try:
            async with asyncio.timeout(self._limits.probe):
                await self._asks.ask(server, Asked(question_of(name, RecordType.TXT)))
            answered = True
        except (OSError, NoAnswerError):  # TimeoutError is an OSError
            answered = False
        if self._pending.pop(name, None) is not None:
            if answered:
                self._health.answered(server)
            else:
                self._health.probe_failed(server, asyncio.get_running_loop().time())
        self._changed.set()
