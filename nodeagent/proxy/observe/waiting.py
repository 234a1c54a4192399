"""Logs what the agent waits for while it waits for its source, and sends heartbeats."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Protocol

from nodeagent.model.problem import Problem

SAY_SECONDS = 10.0
BEAT_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Heartbeat(Protocol):
    """The watchdog that ends the agent if it makes no progress."""

    def beat(self) -> None: ...


class Store(Protocol):
    """What the source has delivered so far."""

    @property
    def awaited(self) -> tuple[str, ...]: ...
    @property
    def problems(self) -> tuple[Problem, ...]: ...


class StartWait:
    """Waits for the first objects and says so. source: where the objects come from, as text for users. say: called with each
    line, besides the log. hint: what to do if the source does not answer; empty if nothing is known."""

    def __init__(
        self,
        source: str,
        store: Store,
        heartbeat: Heartbeat,
        *,
        hint: str = "",
        say: Callable[[str], None] = lambda line: None,  # noqa: ARG005
        say_seconds: float = SAY_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self._source = source
        self._store = store
        self._heartbeat = heartbeat
        self._hint = hint
        self._say = say
        self._say_seconds = say_seconds
        self._beat_seconds = beat_seconds

    def __str__(self) -> str:
        """Returns what is missing, and what is known about the cause."""
        awaited = self._store.awaited
        missing = f"waiting for {', '.join(awaited)} from {self._source}" if awaited else "programming"
        shown = _shown(self._store.problems)
        return "; ".join([missing, *shown, *([self._hint] if awaited and shown and self._hint else [])])

    async def until(self, listed: Coroutine[None, None, None]) -> None:
        """Waits for `listed`, with log lines and heartbeats."""
        loop = asyncio.get_running_loop()
        began = said = loop.time()
        waiting = asyncio.ensure_future(listed)
        try:
            while not (await asyncio.wait({waiting}, timeout=self._beat_seconds))[0]:
                self._heartbeat.beat()
                if loop.time() >= said + self._say_seconds:
                    said = loop.time()
                    logger.info("%s (%d seconds so far)", self, said - began)
                    self._say(str(self))
            await waiting
        finally:
            waiting.cancel()


def _shown(problems: Iterable[Problem], most: int = 2) -> list[str]:
    """Returns some of them; those of one cause differ in the resource only."""
    return [problem.detail for problem in problems][:most]
