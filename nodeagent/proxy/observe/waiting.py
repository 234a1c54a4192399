"""While the agent waits for its source it says for what, and shows that it is alive."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Protocol

from nodeagent.model.problem import Problem

SAY_SECONDS = 10.0
BEAT_SECONDS = 0.5

logger = logging.getLogger(__name__)


class Heartbeat(Protocol):
    """The watchdog that ends us when we make no progress."""

    def beat(self) -> None: ...


class Store(Protocol):
    """What the source has delivered so far."""

    @property
    def awaited(self) -> tuple[str, ...]: ...
    @property
    def problems(self) -> tuple[Problem, ...]: ...


class StartWait:
    """source: for people, where the objects come from. say: called with each line, beside the log. hint: what to do, when the
    source does not answer; empty where nothing is known."""

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
        """What is missing, and what is known of why."""
        awaited = self._store.awaited
        missing = f"waiting for {', '.join(awaited)} from {self._source}" if awaited else "programming"
        shown = _shown(self._store.problems)
        return "; ".join([missing, *shown, *([self._hint] if awaited and shown and self._hint else [])])

    async def until(self, listed: Coroutine[None, None, None]) -> None:
        """Return when `listed` does."""
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
    """Some of them; those of one cause differ in the resource only."""
    return [problem.detail for problem in problems][:most]
