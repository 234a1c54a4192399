"""Notices a server that sends nothing any more, although its connections stay open.

TCP's keepalive finds peers that vanished, not processes that hang. Two signs are checked: the server as a
whole is asked for its version if no answer has arrived for a while, and a single watch is lost if its usual
bookmarks do not arrive. Together they replace the pings of HTTP/2 in client-go (30 s and 15 s). A late answer is reported long before
watches are given up for it: a server that is only slow would have to open all of them again.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from nodeagent.proxy.source.pace import Pace, Timing

PROBE_PATH = "/version"
"""Costs a server next to nothing, and every authenticated user may request it."""


class Prober(Protocol):
    """The part of `ApiClient` that probes."""

    async def is_alive(self, path: str, seconds: float) -> bool: ...


class Pulse:
    """Shared by all informers of one server; each calls `received`, and waits for answers inside `listening`."""

    def __init__(self, pace: Pace) -> None:
        self._timing = pace.timing
        self._random = pace.random
        self._heard = float("-inf")
        self._listening: set[asyncio.Timeout] = set()
        self._informed: set[Callable[[], None]] = set()
        self._probe_seconds = (0.0, 0.0)
        """Of the last two probes: one that is slow may have met an outage."""
        self.losses = 0
        self.is_late = False
        """Whether the server was asked for a sign of life and has not sent any in time."""

    def received(self) -> None:
        """Records that the server sent something, or that nothing was awaited until now."""
        self._restart_silence()
        if self.is_late:
            self._set_late(late=False)

    @contextmanager
    def informing(self, changed: Callable[[], None]) -> Iterator[None]:
        """Inside, `changed` is called after each change of `is_late`."""
        self._informed.add(changed)
        try:
            yield
        finally:
            self._informed.discard(changed)

    @contextmanager
    def listening(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Inside, `limit` expires when the server shows no sign of life; `losses` has grown then. Silence counts from
        when something is awaited."""
        if not self._listening:
            self._restart_silence()
        self._listening.add(limit)
        try:
            yield
        finally:
            self._listening.discard(limit)

    async def run(self, prober: Prober) -> None:
        """Probes the server whenever nothing was received for long. Ends only by cancellation."""
        while True:
            quiet = asyncio.get_running_loop().time() - self._heard
            timing = self._timing
            patience = max(timing.silence, min(min(self._probe_seconds) / timing.probing, timing.longest_silence))
            patience *= 1 - self._random() / 6
            if not self._listening or quiet < patience:
                await asyncio.sleep(max(patience - quiet, patience / 10))
            elif await self._answers(prober):
                self.received()
            else:
                self._lose()

    async def _answers(self, prober: Prober) -> bool:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            probe = group.create_task(prober.is_alive(PROBE_PATH, self._timing.answer), name="probe of the server")
            await asyncio.wait((probe,), timeout=self._timing.late)
            if not probe.done() and self._heard <= began:
                self._set_late(late=True)
        self._probe_seconds = (self._probe_seconds[1], loop.time() - began)
        return probe.result()

    def _set_late(self, *, late: bool) -> None:
        self.is_late = late
        for changed in tuple(self._informed):
            changed()

    def _restart_silence(self) -> None:
        self._heard = asyncio.get_running_loop().time()

    def _lose(self) -> None:
        self.losses += 1
        self._restart_silence()
        now = asyncio.get_running_loop().time()
        for limit in self._listening:
            if not limit.expired():
                limit.reschedule(now)


class Rhythm:
    """How long one resource's watch may be silent, from the distance between its bookmarks. Times are loop times."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._since = 0.0
        self._longest: float | None = None

    @property
    def patience_seconds(self) -> float | None:
        """How long the watch may be silent; None until the first bookmark arrived."""
        if self._longest is None:
            return None
        least, most = self._timing.bookmark_silence
        return min(max(self._timing.bookmarks_missed * self._longest, least), most)

    def begin(self, now: float) -> None:
        """Records that a watch began."""
        self._since = now

    def bookmark(self, now: float) -> None:
        """Records that a bookmark arrived."""
        self._longest = max(self._longest or 0.0, now - self._since)
        self._since = now
