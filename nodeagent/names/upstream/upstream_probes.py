"""Probes servers that are new, suspected, at fault, or lead back to us, until they answer."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from nodeagent.names.upstream.conversation import NoAnswerError
from nodeagent.names.upstream.limits import HealthLimits
from nodeagent.names.upstream.race import CanAsk
from nodeagent.names.upstream.upstream_address import Server
from nodeagent.names.upstream.upstream_fault import MALFORMED, NO_TCP, SILENT, ServerFault, fault_of
from nodeagent.names.upstream.upstream_health import Health
from nodeagent.names.upstream.upstream_question import Asked
from nodeagent.wire.dns.codes import RecordType
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.query import question_of

PROBE_ZONE = from_text("loop-probe.nodeagent.invalid")
"""Under a name that cannot exist (RFC 6761, 6.4): every resolver answers at once that there is no such name."""

logger = logging.getLogger(__name__)


class _Finding(NamedTuple):
    """What one try of a server has shown. is_cut_off: its answer has to be asked for by TCP."""

    fault: ServerFault | None
    is_cut_off: bool = False


class Probes:
    """Probes the servers that failed or are suspected.
    chance: returns a random number below its argument. zone_of: returns the stub zone of a server that is asked for nothing else."""

    def __init__(
        self,
        asks: CanAsk,
        health: Health,
        limits: HealthLimits,
        chance: Callable[[int], int],
        zone_of: Callable[[Server], bytes | None],
    ) -> None:
        self._asks = asks
        self._health = health
        self._limits = limits
        self._chance = chance
        self._zone_of = zone_of
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
        asked = self._health.question(server) or self._own_question(server)
        own = asked.name.endswith(PROBE_ZONE)
        if own:
            self._pending[asked.name] = server
        async with asyncio.TaskGroup() as group:
            by_udp = group.create_task(self._find(server, asked), name=f"probe {server} by UDP")
            asks_tcp = self._health.is_tcp_suspected(server)
            if not asks_tcp:
                await asyncio.wait((by_udp,))
                asks_tcp = by_udp.result().is_cut_off
            by_tcp = None
            if asks_tcp:
                by_tcp = group.create_task(self._find(server, asked, stream=True), name=f"probe {server} by TCP")
        fault = by_udp.result().fault
        if not own or self._pending.pop(asked.name, None) is not None:  # else it came back to us
            if by_tcp is not None:
                self._health.probed_by_tcp(server, by_tcp.result().fault if fault is None else None)
            self._health.probed(server, asked, fault, asyncio.get_running_loop().time(), own=own)
        self._changed.set()

    def _own_question(self, server: Server) -> Asked:
        """Returns a question that every server can answer: the name of a loop, or of the zone that a suspected server is for."""
        zone = self._zone_of(server) if self._health.is_suspected(server) else None
        if zone is not None:
            return Asked(question_of(zone, RecordType.SOA))
        label = f"{self._chance(1 << 128):032x}".encode()
        return Asked(question_of(bytes((len(label),)) + label + PROBE_ZONE, RecordType.TXT))

    async def _find(self, server: Server, asked: Asked, *, stream: bool = False) -> _Finding:
        """Returns what is wrong with the server. A suspected one is asked twice: a packet may be lost."""
        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(self._try(server, asked, stream), name=f"try {server}")]
            if stream or self._health.is_suspected(server):
                pause = group.create_task(asyncio.sleep(self._limits.again), name="pause")
                await asyncio.wait(tries, timeout=self._limits.again)
                if not tries[0].done() or tries[0].result().fault is not None:
                    await pause
                    tries.append(group.create_task(self._try(server, asked, stream), name=f"try {server} again"))
        found = [one.result() for one in tries]
        return next((one for one in found if one.fault is None), found[0])

    async def _try(self, server: Server, asked: Asked, stream: bool) -> _Finding:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._limits.stream if stream else self._limits.probe):
                reply = await self._asks.ask(server, asked, stream=stream, whole=False)
        except (OSError, NoAnswerError) as error:  # TimeoutError is an OSError
            if not stream and (isinstance(error, NoAnswerError) or self._health.was_malformed(server, began)):
                return _Finding(ServerFault(MALFORMED))
            number = error.errno if isinstance(error, OSError) else None
            return _Finding(ServerFault(NO_TCP if stream else SILENT, os.strerror(number) if number else ""))
        return _Finding(
            None if stream else fault_of(reply.rcode, loop.time() - began, self._limits.slow), reply.truncated
        )
