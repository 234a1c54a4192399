"""Looks for chains of other programs that translate before ours: at the start, and when the ruleset has changed since."""

import logging
import time
from collections.abc import Callable
from contextlib import closing

from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.chains_here import read_chains
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import DataplaneError
from nodeagent.proxy.dataplane.hook_order import CHECK, REASON, cure, describe, early_chains
from nodeagent.proxy.dataplane.walk_rest import WalkRest
from nodeagent.proxy.dataplane.worker_thread import in_thread

Seen = tuple[int, tuple[Problem, ...]]
"""The generation of the ruleset, and the problems in it."""

logger = logging.getLogger(__name__)


def read_order(known: int | None) -> Seen | None:
    """Reads all chains; returns None if the ruleset still has the known generation. Uses a socket of its own.
    Raises DataplaneError, OSError."""
    with closing(Ruleset()) as ruleset:
        generation = ruleset.generation()
        if generation == known:
            return None
        early = early_chains(read_chains(ruleset))
    return generation, tuple(Problem(CHECK, REASON, f"{describe(chain, hook)}; {cure(hook)}") for chain, hook in early)


class HookOrderWatch:
    """Keeps the problems of the last look. read: as `read_order`; runs in a thread. clock: in seconds."""

    def __init__(
        self, read: Callable[[int | None], Seen | None] = read_order, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._rest = WalkRest(clock)
        self._generation: int | None = None
        self._problems: tuple[Problem, ...] = ()

    def problems(self) -> tuple[Problem, ...]:
        """Returns one problem for each chain that comes before ours."""
        return self._problems

    async def look(self) -> None:
        """Reads all chains, if something has changed and the last look is long enough ago."""
        if not self._rest.over:
            return
        with self._rest.after():
            try:
                seen = await in_thread(lambda: self._read(self._generation))
            except (DataplaneError, OSError) as error:
                logger.debug("the order of hooks cannot be read: %s", error)
                return
        if seen is not None:
            self._generation, self._problems = seen
