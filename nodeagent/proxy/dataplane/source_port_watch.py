"""Looks now and then whether masqueraded connections find source ports, with a bounded part of a core."""

import logging
import threading
import time
from collections.abc import Callable

from nodeagent.model.addresses import Family, Protocol, endpoint_text
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.source_ports import CURE, PORTS, SCARCE, Crowd, read_crowds, table_is_crowded
from nodeagent.proxy.dataplane.walk_rest import WalkRest
from nodeagent.proxy.dataplane.worker_thread import in_thread

SUBJECT = "source ports"

logger = logging.getLogger(__name__)


def read_all_crowds(stop: Callable[[], bool]) -> tuple[Crowd, ...]:
    """Of both families and protocols, the worst first. Blocking: the whole table is read. Raises OSError."""
    found = [
        crowd
        for family in Family
        for protocol in (Protocol.TCP, Protocol.UDP)
        if not stop()
        for crowd in read_crowds(family, protocol, stop=stop)
    ]
    return tuple(sorted(found, key=lambda crowd: -crowd.count))


def crowd_problem(crowd: Crowd) -> Problem:
    """Without the count, which changes all the time."""
    taken = "all" if crowd.full else f"more than {SCARCE:.0%}"
    endpoint = f"{endpoint_text(*crowd.endpoint)}/{crowd.protocol.name}"
    detail = f"{taken} of the {PORTS} ports of {crowd.source} towards {endpoint} are taken: {crowd.follows}"
    return Problem(SUBJECT, "SourcePortsShort", f"{detail}; {CURE.format(crowd.endpoint[0])}")


class SourcePortWatch:
    """is_crowded: whether a walk may find something, which is cheap to ask. read: walks in a thread. clock: in seconds."""

    def __init__(
        self,
        is_crowded: Callable[[], bool] = table_is_crowded,
        read: Callable[[Callable[[], bool]], tuple[Crowd, ...]] = read_all_crowds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_crowded = is_crowded
        self._read = read
        self._rest = WalkRest(clock)
        self._crowds: tuple[Crowd, ...] = ()

    @property
    def taken(self) -> int:
        """How many ports are taken where most are; 0 where there are enough."""
        return self._crowds[0].count if self._crowds else 0

    def problems(self) -> tuple[Problem, ...]:
        """One for each endpoint towards which ports run out."""
        return tuple(map(crowd_problem, self._crowds))

    async def look(self) -> None:
        """Walks over the table where it has so many entries and the last walk is long enough ago."""
        if not self._is_crowded():
            self._crowds = ()
            return
        if not self._rest.over:
            return
        stop = threading.Event()
        with self._rest.after():
            try:
                self._crowds = await in_thread(lambda: self._read(stop.is_set), hurry=stop.set)
            except OSError as error:
                self._crowds = ()
                logger.debug("the connection table cannot be read for source ports: %s", error)
