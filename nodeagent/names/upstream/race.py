"""Asks several servers one question; the later ones only if the earlier ones are slow or fail."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nodeagent.names.upstream.conversation import NoAnswerError
from nodeagent.names.upstream.limits import AskLimits
from nodeagent.names.upstream.reply import Reply
from nodeagent.names.upstream.schedule import Step, schedule
from nodeagent.names.upstream.transport import LOCAL_ERRORS
from nodeagent.names.upstream.upstream_address import Server
from nodeagent.names.upstream.upstream_fault import GOOD
from nodeagent.names.upstream.upstream_health import Health
from nodeagent.names.upstream.upstream_question import Asked


class CanAsk(Protocol):
    """Asks one server one question."""

    async def ask(self, server: Server, asked: Asked, *, stream: bool = False, whole: bool = True) -> Reply: ...


@dataclass(slots=True)
class Race:
    """The state of one question. second_best: a refusal or failure that a server has sent. tried: when a server was first asked. Times are
    the loop's."""

    steps: list[Step]
    ends: float
    tries: dict[asyncio.Task[Reply | None], tuple[Step, float]] = field(default_factory=dict)
    tried: dict[Server, float] = field(default_factory=dict)
    failed: set[Server] = field(default_factory=set)
    second_best: Reply | None = None


class Asker:
    """Asks several servers. hedges: how often another server was asked because the one before was slow."""

    def __init__(self, conversation: CanAsk, health: Health, limits: AskLimits) -> None:
        self._conversation = conversation
        self._health = health
        self._limits = limits
        self.hedges = 0

    async def ask(self, asked: Asked, servers: Sequence[Server]) -> Reply | None:
        """Returns the first good answer; else a server's refusal; None if no server answered in time."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        race = Race(list(schedule(servers, self._limits)), began + self._limits.total)
        async with asyncio.TaskGroup() as group:
            try:
                while loop.time() < race.ends:
                    while race.steps and began + race.steps[0].at <= loop.time():
                        self._try(group, race, asked, race.steps.pop(0))
                    if not race.tries and not race.steps:
                        break
                    until = min(race.ends, began + race.steps[0].at) if race.steps else race.ends
                    reply = await self._next_good_reply(group, race, asked, max(0.0, until - loop.time()))
                    if reply is not None:
                        self._health.copy(servers[: self._limits.servers], asked, loop.time())
                        return reply
                self._count_silent_servers(race, asked, None)
            finally:
                for task in race.tries:
                    task.cancel()
        return race.second_best

    async def _next_good_reply(
        self, group: asyncio.TaskGroup, race: Race, asked: Asked, patience: float
    ) -> Reply | None:
        """Returns a good answer that arrives within `patience` seconds, or None. A failed try starts the next."""
        if not race.tries:
            await asyncio.sleep(patience)
            return None
        done, _ = await asyncio.wait(race.tries, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            step, _ = race.tries.pop(task)
            reply = task.result()
            if reply is not None and reply.rcode in GOOD:
                self._count_silent_servers(race, asked, step.server)
                return reply
            self._try_next(group, race, asked, step, reply)
        return None

    def _try(self, group: asyncio.TaskGroup, race: Race, asked: Asked, step: Step) -> None:
        if race.tries and step.server not in race.tried:
            self.hedges += 1
        now = asyncio.get_running_loop().time()
        if step.server in race.tried and step.server not in race.failed:
            self._health.doubt(step.server, asked, now)
        began = race.tried.setdefault(step.server, now)
        task = group.create_task(self._ask_server(step, asked, began), name=f"ask {step.server}")
        race.tries[task] = step, now

    async def _ask_server(self, step: Step, asked: Asked, began: float) -> Reply | None:
        """Returns the server's answer, and updates its health; None if it cannot be reached. began: when it was first asked this."""
        loop = asyncio.get_running_loop()
        self._health.asks(step.server, loop.time())
        try:
            reply = await self._conversation.ask(step.server, asked, stream=step.stream)
        except (OSError, NoAnswerError) as error:
            if not (isinstance(error, OSError) and error.errno in LOCAL_ERRORS):
                self._health.failed(step.server, asked, loop.time())
            return None
        self._health.answered(step.server, asked, reply.rcode, loop.time() - began, loop.time())
        return reply

    def _try_next(self, group: asyncio.TaskGroup, race: Race, asked: Asked, step: Step, reply: Reply | None) -> None:
        """After a failure or refusal: asks the next server that was not asked yet."""
        if reply is None:
            race.failed.add(step.server)
        else:
            race.second_best = race.second_best or reply
            race.steps = [other for other in race.steps if other.server != step.server]
            race.ends = min(race.ends, asyncio.get_running_loop().time() + self._limits.second_best)
        fresh = next((other for other in race.steps if other.server not in race.tried), None)
        if fresh is not None:
            race.steps.remove(fresh)
            self._try(group, race, asked, fresh)

    def _count_silent_servers(self, race: Race, asked: Asked, winner: Server | None) -> None:
        """Counts a failure for each server that was asked long enough ago and has not answered; once for each question."""
        now = asyncio.get_running_loop().time()
        slow = {
            step.server
            for task, (step, since) in race.tries.items()
            if not task.done() and now - since >= self._limits.hedge
        }
        for server in slow - race.failed - {winner}:
            self._health.failed(server, asked, now)
