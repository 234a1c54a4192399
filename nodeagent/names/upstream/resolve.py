"""Answers one question: from the cache, from the same question already in progress, or from the servers."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass

from nodeagent.model.name_counts import UpstreamCounts, UpstreamFault
from nodeagent.names.shares import NOBODY, Client, Shares
from nodeagent.names.upstream.belonging import AnswerKind, belonging
from nodeagent.names.upstream.cache import Cache, Entry
from nodeagent.names.upstream.conversation import ServerConversation
from nodeagent.names.upstream.limits import Limits
from nodeagent.names.upstream.node_resolvers import Resolvers
from nodeagent.names.upstream.prepared_reply import PreparedReply, failed, prepare
from nodeagent.names.upstream.race import Asker
from nodeagent.names.upstream.stub_zones import StubZones
from nodeagent.names.upstream.transport import Sockets, Transport
from nodeagent.names.upstream.upstream_address import Server, without_own
from nodeagent.names.upstream.upstream_fault import LOOP, SILENT, USELESS
from nodeagent.names.upstream.upstream_health import Health, ServerState
from nodeagent.names.upstream.upstream_probes import Probes
from nodeagent.names.upstream.upstream_question import Asked, asked_by
from nodeagent.wire.dns.codes import Rcode
from nodeagent.wire.dns.domain_names import to_text
from nodeagent.wire.dns.query import NotAnswered, Query, answer_with, header_only, read_query

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Counters since the start. joined: waited for the same question. full: rejected because too many were in progress."""

    requests: int = 0
    hits: int = 0
    stale: int = 0
    joined: int = 0
    asked: int = 0
    failures: int = 0
    full: int = 0
    loops: int = 0


@dataclass(frozen=True, slots=True)
class Resolution:
    """The result of asking upstream. good: the answer has data or a denial; False for a failure."""

    answer: PreparedReply
    good: bool


FAILED = Resolution(failed(), good=False)


class Upstream:
    """Resolves names outside our zones.
    resolvers: the servers for names that are in no stub zone. listening, node_addresses: our own addresses, which are
    never asked. chance: returns an unpredictable random number below its argument. mix_case: see `ServerConversation`.
    """

    def __init__(
        self,
        resolvers: Resolvers,
        zones: StubZones,
        *,
        listening: Collection[Server] = (),
        node_addresses: Collection[str] = (),
        limits: Limits = Limits(),  # noqa: B008  # frozen
        transport: Transport | None = None,
        chance: Callable[[int], int] = secrets.randbelow,
        mix_case: bool = False,
    ) -> None:
        self._resolvers = resolvers
        self._zones = zones
        self._listening = frozenset(listening)
        self._node_addresses = frozenset(node_addresses)
        self._limits = limits
        self._cache = Cache(limits.cache)
        self._health = Health(limits.health, lambda: self._probes.wake())
        conversation = ServerConversation(
            transport or Sockets(), self._health, limits.ask, chance=chance, mix_case=mix_case
        )
        self._probes = Probes(conversation, self._health, limits.health, chance, self._zone_of)
        self._asker = Asker(conversation, self._health, limits.ask)
        self._under_way: dict[Asked, asyncio.Task[Resolution]] = {}
        self._shares = Shares(limits.ask.questions)
        self._waiting = 0
        self._tasks: asyncio.TaskGroup | None = None
        self.counts = Counts()

    @property
    def servers(self) -> tuple[ServerState, ...]:
        """The state of every server."""
        return self._health.states

    @property
    def hedges(self) -> int:
        """How often a second server was asked because the first was slow."""
        return self._asker.hedges

    @property
    def cached(self) -> tuple[int, int]:
        """The entries of the cache, and their bytes."""
        return len(self._cache), self._cache.size

    def figures(self) -> UpstreamCounts:
        """Returns the counters, and what is wrong with which servers."""
        counts, (cached, size) = self.counts, self.cached
        faults = tuple(UpstreamFault(str(state.server), *fault) for state in self.servers for fault in state.faults)
        useless = {fault.server for fault in faults if fault.kind in USELESS}
        groups = ((".", self._resolvers.servers), *self._zones.zones)
        return UpstreamCounts(
            counts.requests,
            counts.hits,
            counts.stale,
            counts.failures,
            self.hedges,
            counts.full,
            cached,
            size,
            tuple(fault.server for fault in faults if fault.kind in (SILENT, LOOP)),
            faults,
            tuple(
                zone
                for zone, group in groups
                if (left := self._without_own(group)) and useless.issuperset(map(str, left))
            ),
        )

    async def run(self) -> None:
        """Owns all tasks; before and after it runs, queries fail. Ends only when cancelled."""
        self._update_probes()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._resolvers.run(self._on_resolvers_changed), name="upstream resolvers")
                tasks.create_task(self._probes.run(), name="upstream probes")
        finally:
            self._tasks = None

    async def resolve(self, packet: bytes, client: Client = NOBODY) -> bytes:
        """Returns the complete response, uncut, to a query message of this client; raises nothing but CancelledError."""
        try:
            return await self.answer(read_query(packet), client)
        except NotAnswered as refusal:
            return refusal.reply or header_only(packet.ljust(4, b"\0"), Rcode.FORMERR)

    async def answer(self, query: Query, client: Client = NOBODY) -> bytes:
        """As `resolve`, for a query that was already parsed."""
        try:
            return self.from_cache(query) or await self._answer_uncached(query, client)
        except Exception:
            logger.exception(
                "a query for %s was answered SERVFAIL: an error in nodeagent, please report it", to_text(query.name)
            )
            return answer_with(query, Rcode.SERVFAIL)

    def from_cache(self, query: Query) -> bytes | None:
        """Returns the response if it is in the cache, else None."""
        now = asyncio.get_running_loop().time()
        asked = asked_by(query)
        entry = self._cache.fresh(asked, now)
        if entry is not None:
            self.counts.requests += 1
            self.counts.hits += 1
            return entry.answer.for_client(query, age=entry.age(now), at_most=self._limits.cache.longest)
        return None

    async def _answer_uncached(self, query: Query, client: Client) -> bytes:
        self.counts.requests += 1
        loop = asyncio.get_running_loop()
        asked = asked_by(query)
        if self._probes.is_returned_probe(asked.name):
            self.counts.loops += 1
            return answer_with(query, Rcode.REFUSED)
        held = self._cache.stale(asked, loop.time())
        if held is not None and loop.time() < held.rests_until:
            return self._from_stale(query, held)
        servers = self._servers_for(asked)
        task = self._ask(asked, servers, client)
        if task is not None:
            patience = None
            if held is not None:
                patience = 0.0 if self._health.all_down(servers) else self._limits.ask.stale_patience
            self._waiting += 1
            try:
                await asyncio.wait((task,), timeout=patience)
            finally:
                self._waiting -= 1
        outcome = task.result() if task is not None and task.done() and not task.cancelled() else FAILED
        if held is not None and not outcome.good:
            return self._from_stale(query, held)
        if not outcome.good:
            self.counts.failures += 1
        return outcome.answer.for_client(query, at_most=self._limits.cache.longest)

    def _from_stale(self, query: Query, held: Entry) -> bytes:
        self.counts.stale += 1
        return held.answer.for_client(query, stale_ttl=self._limits.cache.stale_ttl)

    def _ask(self, asked: Asked, servers: tuple[Server, ...], client: Client) -> asyncio.Task[Resolution] | None:
        """Returns the one task for this question; None if no server can be asked, or if too many questions are in
        progress, of all clients or of this one."""
        if self._tasks is None or not servers:
            return None
        if self._waiting >= self._limits.ask.waiting:
            self.counts.full += 1
            return None
        task = self._under_way.get(asked)
        if task is not None:
            self.counts.joined += 1
            return task
        if not self._shares.has_room(client):
            self.counts.full += 1
            return None
        self.counts.asked += 1
        task = self._tasks.create_task(self._look_up(asked, servers, client), name="upstream question")
        self._under_way[asked] = task
        self._shares.take(client)
        task.add_done_callback(lambda _: self._release(asked, client))
        return task

    def _release(self, asked: Asked, client: Client) -> None:
        self._under_way.pop(asked, None)
        self._shares.give_back(client)

    async def _look_up(self, asked: Asked, servers: tuple[Server, ...], client: Client) -> Resolution:
        try:
            reply = await self._asker.ask(asked, servers)
        except Exception:
            logger.exception("the question %s was not asked: an error in nodeagent, please report it", asked.question)
            reply = None
        now = asyncio.get_running_loop().time()
        outcome = FAILED
        if reply is not None:
            kept = belonging(reply, asked)
            prepared = prepare(reply, kept, asked)
            if prepared is not None and kept.worth is not AnswerKind.FAILURE:
                self._cache.put(asked, prepared, kept.worth, kept.ttl, now, client)
                return Resolution(prepared, good=True)
            outcome = Resolution(prepared, good=False) if prepared is not None else FAILED
        self._cache.fail(asked, outcome.answer, now, client)
        return outcome

    def _servers_for(self, asked: Asked) -> tuple[Server, ...]:
        servers = self._zones.servers_for(asked.name)
        return self._health.in_order(self._without_own(self._resolvers.servers if servers is None else servers))

    def _zone_of(self, server: Server) -> bytes | None:
        return None if server in self._resolvers.servers else self._zones.zone_of(server)

    def _without_own(self, servers: Collection[Server]) -> tuple[Server, ...]:
        return without_own(servers, self._listening, self._node_addresses)

    def _update_probes(self) -> None:
        self._probes.set_servers(self._without_own((*self._resolvers.servers, *self._zones.servers)))

    def _on_resolvers_changed(self) -> None:
        """Uses the node's new resolvers; as their answers may differ, the cached ones become stale."""
        self._update_probes()
        self._cache.expire_all(asyncio.get_running_loop().time())
