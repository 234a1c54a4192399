"""How a server that says nothing any more is noticed, although its connections stay open.

TCP's keepalive finds peers that vanished, not processes that stand still. Two signs are looked for: the server as a
whole is asked for its version when no answer has arrived for a while, and a single watch is lost when the bookmarks
that it used to get stay away. Together they stand for the pings of HTTP/2 in client-go (30 s and 15 s).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from nodeagent.proxy.source.pace import Pace, Timing

PROBE_PATH = "/version"
"""Costs a server next to nothing, and every authenticated user may ask for it."""


class Prober(Protocol):
    """The part of `ApiClient` that asks."""

    async def lives(self, path: str, seconds: float) -> bool: ...


class Pulse:
    """Shared by all who follow one server; each says what it hears, and listens inside `listening`."""

    def __init__(self, pace: Pace) -> None:
        self._timing = pace.timing
        self._random = pace.random
        self._heard = float("-inf")
        self._listening: set[asyncio.Timeout] = set()
        self.losses = 0

    def received(self) -> None:
        """Records that the server sent something, or that nobody listened until now."""
        self._heard = asyncio.get_running_loop().time()

    @contextmanager
    def listening(self, limit: asyncio.Timeout) -> Iterator[None]:
        """While inside, the end of the server's life makes `limit` expire; `losses` has grown then. Silence counts from
        when somebody listens."""
        if not self._listening:
            self.received()
        self._listening.add(limit)
        try:
            yield
        finally:
            self._listening.discard(limit)

    async def run(self, prober: Prober) -> None:
        """Ask whenever all have been silent for long. Ends only by cancellation."""
        while True:
            quiet = asyncio.get_running_loop().time() - self._heard
            patience = self._timing.silence * (1 - self._random() / 6)
            if not self._listening or quiet < patience:
                await asyncio.sleep(max(patience - quiet, patience / 10))
            elif await prober.lives(PROBE_PATH, self._timing.answer):
                self.received()
            else:
                self._lose()

    def _lose(self) -> None:
        self.losses += 1
        self.received()
        now = asyncio.get_running_loop().time()
        for limit in self._listening:
            if not limit.expired():
                limit.reschedule(now)


class Rhythm:
    """How long one resource's watch may be silent, from how far its bookmarks are apart. Times are loop times."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._since = 0.0
        self._longest: float | None = None

    @property
    def patience_seconds(self) -> float | None:
        """Seconds; None while no bookmark has come."""
        if self._longest is None:
            return None
        least, most = self._timing.bookmark_silence
        return min(max(self._timing.bookmarks_missed * self._longest, least), most)

    def begin(self, now: float) -> None:
        """A watch begins."""
        self._since = now

    def bookmark(self, now: float) -> None:
        """A bookmark came."""
        self._longest = max(self._longest or 0.0, now - self._since)
        self._since = now
