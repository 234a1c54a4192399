"""Makes the reply to a packet, by UDP or TCP."""

import asyncio
import logging
from typing import Protocol

from msgspec.structs import replace

from nodeagent.model.name_counts import UpstreamCounts
from nodeagent.names.server.clients import Clients, SearchPaths
from nodeagent.names.server.query_log import QueryLog
from nodeagent.names.server.tally import ReplyCounts
from nodeagent.names.server.walk import Walk, begin_walk, walk_ours
from nodeagent.names.shares import Client, Shares, client_at
from nodeagent.names.zone.lookup import LookupResult
from nodeagent.names.zone.prepared_answers import PreparedAnswers, complete
from nodeagent.wire.dns.codes import CD, HEADER_SIZE, RD, TCP_LIMIT, Rcode, RecordType
from nodeagent.wire.dns.domain_names import to_text
from nodeagent.wire.dns.message import BadMessage, Sections, cut, read_message
from nodeagent.wire.dns.query import NotAnswered, Query, answer_with, read_query

logger = logging.getLogger(__name__)

MOST_FORWARDED = 1000
"""How many queries may wait for upstream; one client has half of them at most. Further ones get SERVFAIL, so that the
node's own names are still answered."""

NOT_OURS = LookupResult(b"\0")


class Upstream(Protocol):
    """Resolves names outside our zones."""

    async def run(self) -> None:
        """Does background work, such as probes of its servers, until cancelled."""
        ...

    async def resolve(self, query: bytes, client: Client) -> bytes:
        """Returns a complete response message with the query's id, uncut; raises nothing but CancelledError."""
        ...

    def figures(self) -> UpstreamCounts:
        """Returns the counters."""
        ...


class Waiting:
    """A query that waits for upstream. walk: the steps of a search path that are left, if it is a search step."""

    __slots__ = ("client", "found", "limit", "query", "walk")

    def __init__(self, query: Query, client: Client, found: LookupResult, limit: int, walk: Walk | None = None) -> None:
        self.query = query
        self.client = client
        self.found = found
        self.limit = limit
        self.walk = walk


class Front:
    """Replies from `answers`, and from upstream for names that these do not have.

    clients, log: used by the listeners. paths: the search paths of pods; None: no path is walked.
    """

    def __init__(
        self,
        answers: PreparedAnswers,
        upstream: Upstream,
        clients: Clients | None = None,
        paths: SearchPaths | None = None,
        log: QueryLog | None = None,
    ) -> None:
        self.answers = answers
        self.clients = clients or Clients()
        self._upstream = upstream
        self._paths = paths
        self.log = log or QueryLog()
        self._waiting = Shares(MOST_FORWARDED)
        self.unserved = 0
        """Queries of clients that are not served."""
        self.dropped = 0
        """Packets that got no reply."""
        self.rejected = 0
        """Queries refused because too many others were waiting for upstream."""

    def refuse(self, packet: bytes) -> bytes | None:
        """Returns the reply to a client that is not served: REFUSED to a query, else None for no reply."""
        self.unserved += 1
        try:
            return answer_with(read_query(packet), Rcode.REFUSED)
        except NotAnswered:
            return None

    def count(
        self, counted: ReplyCounts, packet: bytes, answer: bytes | None, client: str, proto: str, seconds: float
    ) -> None:
        """Counts and logs a reply that UDP's fast path did not make. No reply, or one to no query, is counted only."""
        if answer is None:
            self.dropped += 1
        elif answer[4:6] != b"\0\1":
            counted.reply(b"", answer[3] & 0x0F)
        else:
            end = HEADER_SIZE
            while answer[end]:
                end += 1 + answer[end]
            counted.reply(answer[end + 1 : end + 3], answer[3] & 0x0F)
            counted.add_duration(seconds)
            self.log.note(packet, answer, client, proto, seconds)

    def upstream_counts(self) -> UpstreamCounts:
        """Returns upstream's counters; `rejected` includes the queries that were rejected here."""
        counts = self._upstream.figures()
        return replace(counts, rejected=counts.rejected + self.rejected)

    def may_walk_for(self, client: str) -> bool:
        """Returns whether an NXDOMAIN for this client may be a step of a search path."""
        return self._paths is not None and self.answers.lookup.index.namespace_at(client) is not None

    def reply(self, packet: bytes, *, tcp: bool, client: str = "") -> bytes | Waiting | None:
        """Returns the reply to any packet; None for no reply, Waiting if `resolve` must be awaited.
        client: the address it came from, for its search path."""
        try:
            query = read_query(packet)
        except NotAnswered as refused:
            return refused.reply
        try:
            return self._answer(query, TCP_LIMIT if tcp else query.udp_limit, client)
        except Exception:
            logger.exception("%s was answered SERVFAIL: an error in nodeagent, please report it", to_text(query.name))
            return answer_with(query, Rcode.SERVFAIL)

    def _answer(self, query: Query, limit: int, client: str) -> bytes | Waiting:
        answer = self.answers.answer(query, limit)
        walk = None
        if isinstance(answer, bytes):
            walk = begin_walk(query, answer, self._path_of(client))
            made = answer if walk is None else walk_ours(self.answers, walk, limit)
            if isinstance(made, bytes):
                return made
            walk, answer = made, NOT_OURS
        asking = client_at(client)
        if not self._waiting.has_room(asking):
            self.rejected += 1
            return answer_with(query, Rcode.SERVFAIL)
        return Waiting(query, asking, answer, limit, walk)

    async def resolve(self, waiting: Waiting) -> bytes:
        """Returns the reply to a query that needs upstream."""
        self._waiting.take(waiting.client)
        try:
            if waiting.walk is not None:
                return await self._walk(waiting, waiting.walk)
            return await self._ask(waiting)
        finally:
            self._waiting.give_back(waiting.client)

    def _path_of(self, client: str) -> tuple[bytes, ...]:
        if self._paths is None or not client:
            return ()
        namespace = self.answers.lookup.index.namespace_at(client)
        return () if namespace is None else self._paths.of(namespace)

    async def _walk(self, waiting: Waiting, walk: Walk) -> bytes:
        """Returns the reply to the query of a walk, step by step."""
        for step in walk.steps:
            query = walk.query_for(step)
            made = self.answers.answer(query, TCP_LIMIT)
            response = made
            if not isinstance(response, bytes):
                response = await self._ask(Waiting(query, waiting.client, response, TCP_LIMIT))
            reply = walk.end_at(step, response, waiting.limit)
            if reply is not None:
                return reply
        return walk.first

    async def _ask(self, waiting: Waiting) -> bytes:
        if waiting.found.alias is None:
            return cut(
                await self._upstream.resolve(waiting.query.packet, waiting.client),
                waiting.limit,
                len(waiting.query.opt),
            )
        return await self._follow_alias_upstream(waiting, waiting.found.alias)

    async def _follow_alias_upstream(self, waiting: Waiting, target: bytes) -> bytes:
        """Returns the reply to a name of ours that is a CNAME to a name outside our zones."""
        packet = waiting.query.packet
        question = target + waiting.query.question[-4:]
        header = packet[:2] + bytes((packet[2] & RD, packet[3] & CD)) + b"\0\1\0\0\0\0\0\0"
        response = await self._upstream.resolve(header + question, waiting.client)
        try:
            _, sections = read_message(response)
        except BadMessage:
            sections, rcode = Sections(), int(Rcode.SERVFAIL)
        else:
            rcode = response[3] & 0x0F
        return complete(waiting.query, waiting.found, sections, self._rcode_of(sections, rcode), waiting.limit)

    def _rcode_of(self, sections: Sections, rcode: int) -> int:
        """Returns upstream's rcode, or NOERROR if its answer leads back to a name of ours, of which it knows nothing."""
        last = sections.answer[-1] if sections.answer else None
        leads_back = (
            last is not None
            and last.kind == RecordType.CNAME
            and self.answers.lookup.zone_of(last.rdata.lower()) is not None
        )
        return int(Rcode.NOERROR) if leads_back else rcode


class Tasks:
    """Owns the tasks of waiting queries, so that each is awaited or cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, task: "asyncio.Task[None]") -> None:
        """Keeps a task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, within_s: float) -> None:
        """Waits for the running tasks, and cancels those that have not ended after that time."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
