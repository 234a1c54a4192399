"""Publishes events without ever blocking a caller: `record` only queues, one task sends.

Equal events within six minutes are one Event object whose series counts them (client-go's EventBroadcaster does the
same). An event that every node would write has one name for all of them: the first to create it counts its series,
the others receive 409 (it exists) and stop. Requests are spaced, so that a thousand problems on a thousand nodes do not become a
storm; while the API server cannot be reached events wait in a queue of fixed size, and those that do not fit are counted and dropped.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct

from nodeagent.model.backoff import Backoff
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Retryable
from nodeagent.proxy.observe.event_documents import (
    Event,
    Regarding,
    Series,
    creation,
    event_name,
    problem_event,
    repetition,
)
from nodeagent.proxy.observe.problem_board import ProblemChanges

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
_GONE = 404
_EXISTS = 409

logger = logging.getLogger(__name__)


class EventPost(Protocol):
    """The connection to the API server."""

    def send(self, method: str, path: str, body: Mapping[str, object], content_type: str) -> Awaitable[tuple[int, str]]:
        """Returns the HTTP status and, unless it is 2xx, the server's error text. Raises Retryable if there was no answer, or
        one that requests a retry later."""
        ...


@dataclass(frozen=True, slots=True)
class EventTiming:
    """Seconds. spacing: between requests. memory: after this, an equal event is a new one. series: between updates
    of one series. retry: after the API server could not be reached. farewell: to send the queue when the agent stops."""

    spacing: float = 0.2
    memory: float = 360.0
    series: float = 60.0
    retry: Backoff = field(default_factory=lambda: Backoff(first_seconds=1.0))
    farewell: float = 1.0


class _Waiting(Struct):
    first: datetime
    last: datetime
    count: int
    due: float


class _Sent(Struct):
    """A series of which an Event was sent. ours: we created the Event object; otherwise another node counts its series."""

    name: str
    first: datetime
    count: int
    at: float
    ours: bool = True


class EventRecorder:
    """Queues events and sends them.

    instance: the reporting agent. clock: forward-only seconds; wall: the time of day; suffixes: unique, 16 characters.
    sent, refused, dropped: events that the server has, that it refused, and that found no room in the queue.
    """

    def __init__(
        self,
        post: EventPost,
        *,
        instance: str,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        suffixes: Callable[[], str],
        timing: EventTiming | None = None,
        capacity: int = 256,
    ) -> None:
        self._post = post
        self._instance = instance
        self._clock = clock
        self._wall = wall
        self._suffixes = suffixes
        self._timing = timing or EventTiming()
        self._capacity = capacity
        self._waiting: dict[Event, _Waiting] = {}
        self._sent: dict[Event, _Sent] = {}
        self._logged: set[int] = set()
        self._unforeseen: set[type[Exception]] = set()
        self._unreachable = False
        self._wake = asyncio.Event()
        self.sent = 0
        self.refused = 0
        self.dropped = 0

    def record(self, event: Event) -> None:
        """Queues an event for publication. Returns at once, whatever the API server does."""
        now, moment = self._clock(), self._wall()
        known = self._waiting.get(event)
        if known is not None:
            known.count += 1
            known.last = moment
            return
        if len(self._waiting) >= self._capacity:
            self.dropped += 1
            return
        self._forget_old(now)
        before = self._sent.get(event)
        if before is not None and not before.ours:
            return
        due = now if before is None else max(now, before.at + self._timing.series)
        self._waiting[event] = _Waiting(moment, moment, 1, due)
        self._wake.set()

    async def run(self) -> None:
        """Sends until cancelled; what is due then still gets a moment."""
        try:
            while True:
                await self._send_due()
                self._wake.clear()
                try:
                    async with asyncio.timeout_at(min((held.due for held in self._waiting.values()), default=None)):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        except asyncio.CancelledError:
            await self._send_due_at_end()
            raise

    async def _send_due(self) -> None:
        failures = 0
        while (event := self._next_due()) is not None:
            try:
                await self._deliver(event)
            except Retryable as error:
                if not self._unreachable:
                    self._unreachable = True
                    logger.warning("events cannot be published, trying again: %s", error)
                self._waiting[event] = self._waiting.pop(
                    event
                )  # the next attempt is for another event, if there is one
                failures += 1
                await asyncio.sleep(self._timing.retry.seconds(failures))
            except Exception as error:  # noqa: BLE001 - no event is worth the agent
                self._give_up(event, error)
            else:
                self._unreachable = False
                failures = 0
                await asyncio.sleep(self._timing.spacing)

    async def _send_due_at_end(self) -> None:
        try:
            async with asyncio.timeout(self._timing.farewell):
                while (event := self._next_due()) is not None:
                    await self._deliver(event)
        except (TimeoutError, Retryable):
            return
        except Exception as error:  # noqa: BLE001 - the agent ends, and not because of this
            logger.debug("an event cannot be sent: %s", error)

    def _next_due(self) -> Event | None:
        now = self._clock()
        return next((event for event, held in self._waiting.items() if held.due <= now), None)

    async def _deliver(self, event: Event) -> None:
        """Sends one event; it stays queued unless the server has decided about it. Raises Retryable."""
        held = self._waiting[event]
        count, last = held.count, held.last
        before = self._sent.get(event)
        status, text = _GONE, ""
        if before is not None:
            series = Series(before.count + count, last)
            path = f"{event.path}/{before.name}"
            status, text = await self._post.send("PATCH", path, repetition(series), MERGE_PATCH)
            sent = _Sent(before.name, before.first, series.count, self._clock())
        if status == _GONE:
            total = Series(count + (before.count if before is not None else 0), last)
            name = event_name(event, self._suffixes())
            body = creation(event, name=name, instance=self._instance, first=held.first, series=total)
            status, text = await self._post.send("POST", event.path, body, JSON)
            written_by_other = event.shared and status == _EXISTS
            sent = _Sent(name, held.first, total.count, self._clock(), ours=not written_by_other)
        self._take_off_queue(event, count)
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES or status == _EXISTS:
            self.sent += 1
            self._sent.pop(event, None)
            self._sent[event] = sent
        else:
            self.refused += 1
            self._log_refusal(event, status, text)

    def _take_off_queue(self, event: Event, count: int) -> None:
        """Takes `count` occurrences off the queue; those that came meanwhile wait for the next update of the series."""
        held = self._waiting[event]
        held.count -= count
        if held.count:
            held.first, held.due = held.last, self._clock() + self._timing.series
        else:
            del self._waiting[event]

    def _log_refusal(self, event: Event, status: int, text: str) -> None:
        level = logging.DEBUG if status in self._logged else logging.WARNING
        self._logged.add(status)
        logger.log(level, "event %s refused status=%d: %s", event.reason, status, text)

    def _give_up(self, event: Event, error: Exception) -> None:
        """Drops an event that cannot even be sent; logs the first one for each type of error, with its object."""
        self._waiting.pop(event, None)
        self.refused += 1
        level = logging.DEBUG if type(error) in self._unforeseen else logging.ERROR
        self._unforeseen.add(type(error))
        about = event.regarding
        place = f"{about.kind} {ObjectKey(about.namespace, about.name)}"
        logger.log(level, "event %s on %s cannot be sent: %s: %s", event.reason, place, type(error).__name__, error)

    def _forget_old(self, now: float) -> None:
        """Drops what was sent so long ago that an equal event is a new one; the oldest are in front."""
        while self._sent:
            event, oldest = next(iter(self._sent.items()))
            if now - oldest.at < self._timing.memory:
                return
            del self._sent[event]


class ProblemEvents:
    """Records the problems of objects as events, each once, when it appears.

    uid_of: returns the uid of an object by kind and key; None if there is no such object.
    """

    def __init__(
        self,
        record: Callable[[Event], None],
        *,
        node: Regarding,
        uid_of: Callable[[str, ObjectKey], str | None],
    ) -> None:
        self._record = record
        self._node = node
        self._uid_of = uid_of

    def problems_changed(self, changes: ProblemChanges) -> None:
        for problem in changes.new:
            event = problem_event(problem, self._node, self._uid_of)
            if event is not None:
                self._record(event)
