"""Watches whether rules of other programs stop connections to Services or lose their long packets.

A process beside the agent follows some connections through all rules, as `nodeagent check` does. It runs when other programs have
changed rules, or an MTU has changed, with a bounded part of a core.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain, islice

from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.errors import DataplaneError
from nodeagent.proxy.dataplane.followed_sample import FollowedSample
from nodeagent.proxy.dataplane.path_fingerprint import PathFingerprint, read_fingerprint
from nodeagent.proxy.dataplane.walk_rest import WalkRest
from nodeagent.proxy.dataplane.worker_thread import in_thread

LOOK_SECONDS = 5.0
SERVICES = 16
"""The number of Services to which connections are followed."""
CREDIT_SECONDS = 300.0
"""The processor time that may be used at once after a quiet time: 3 s."""
AGAIN_SECONDS = 60.0
"""After this time connections are followed again while there is a problem."""
RARELY_SECONDS = 600.0
"""After this time they are followed again in any case: what sets and iptables-legacy have is not seen to change."""

logger = logging.getLogger(__name__)


Follow = Callable[[Sequence[str]], Awaitable[FollowedSample]]
"""Follows connections to these Services (`namespace/name`). Raises OSError if it cannot."""


class ConnectionWatch:
    """Follows sample connections to find rules that stop them.
    states: returns what is programmed now. report: receives all problems after each look. clock: in seconds. times: how often
    connections were followed."""

    def __init__(
        self,
        states: Callable[[], Mapping[ObjectKey, ServiceState]],
        follow: Follow,
        report: Callable[[Iterable[Problem]], None],
        read: Callable[[PathFingerprint | None], PathFingerprint] = read_fingerprint,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = states
        self._follow = follow
        self._report = report
        self._read = read
        self._clock = clock
        self._reading = WalkRest(clock)
        self._following = WalkRest(clock, CREDIT_SECONDS)
        self._seen: PathFingerprint | None = None
        self._followed: PathFingerprint | None = None
        self._last = float("-inf")
        self.last = FollowedSample()
        self.times = 0

    def count(self, reason: str) -> int:
        """Returns the number of problems with this reason."""
        return sum(one.reason == reason for one in self.last.problems)

    async def run(self) -> None:
        """Looks for changes periodically, until cancelled. The first look is late, so that an agent that ends soon starts no process."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Follows connections if something has changed, or the last time is long ago, and the last ones have not cost too much."""
        if not await self._is_due() or not self._following.over:
            return
        if not (services := sample(self._states())):
            return
        seen, begun = self._seen, self._clock()
        self._last = begun
        try:
            found = await self._follow(services)
        except OSError as error:
            self._following.spend(self._clock() - begun)
            logger.debug("no connections were followed through the rules of other programs: %s", error)
            return
        self._following.spend(found.processor_seconds)
        if found.unread and found.unread != self.last.unread:
            logger.info("not all rules of other programs are watched: %s", found.unread)
        self._followed, self.last = seen, found
        self.times += 1
        self._report(found.problems)

    async def _is_due(self) -> bool:
        if self._reading.over:
            try:
                with self._reading.after():
                    self._seen = await in_thread(lambda: self._read(self._seen))
            except (DataplaneError, OSError) as error:
                logger.debug("the rules of other programs cannot be read: %s", error)
        if self._followed is None or (self._seen is not None and self._seen.content != self._followed.content):
            return True
        return self._clock() - self._last >= (AGAIN_SECONDS if self.last.problems else RARELY_SECONDS)


def sample(states: Mapping[ObjectKey, ServiceState]) -> list[str]:
    """Returns the names of some Services with endpoints, evenly spread over all. A thread may add and remove others meanwhile."""
    keys = tuple(states)
    step = max(1, -(-len(keys) // SERVICES))
    places = chain.from_iterable(range(first, len(keys), step) for first in range(step))
    served = (place for place in places if _is_served(states.get(keys[place])))
    return [str(keys[place]) for place in sorted(islice(served, SERVICES))]


def _is_served(state: ServiceState | None) -> bool:
    return state is not None and any(one.route.backends for one in state.frontends)
