"""Checks periodically whether masqueraded connections find source ports, with a bounded part of a core."""

import logging
import threading
import time
from collections.abc import Callable

from nodeagent.model.addresses import Family, Protocol, endpoint_text
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.source_ports import (
    CURE,
    PORTS,
    SCARCE,
    PortShortage,
    ports_may_be_scarce,
    read_port_shortages,
)
from nodeagent.proxy.dataplane.walk_rest import WalkRest
from nodeagent.proxy.dataplane.worker_thread import in_thread

SUBJECT = "source ports"

logger = logging.getLogger(__name__)


def read_all_port_shortages(stop: Callable[[], bool]) -> tuple[PortShortage, ...]:
    """Returns the shortages of both families and protocols, the worst first. Blocking: reads the whole table. Raises OSError."""
    found = [
        shortage
        for family in Family
        for protocol in (Protocol.TCP, Protocol.UDP)
        if not stop()
        for shortage in read_port_shortages(family, protocol, stop=stop)
    ]
    return tuple(sorted(found, key=lambda shortage: -shortage.count))


def port_shortage_problem(shortage: PortShortage) -> Problem:
    """Returns the problem of a shortage, without its count, which changes all the time."""
    taken = "all" if shortage.full else f"more than {SCARCE:.0%}"
    endpoint = f"{endpoint_text(*shortage.endpoint)}/{shortage.protocol.name}"
    detail = f"{taken} of the {PORTS} ports of {shortage.source} towards {endpoint} are taken: {shortage.follows}"
    return Problem(SUBJECT, "SourcePortsShort", f"{detail}; {CURE.format(shortage.endpoint[0])}")


class SourcePortWatch:
    """Keeps the result of the last walk.

    is_scarce: whether a walk may find something, which is cheap to check. read: walks; runs in a thread. clock: in seconds.
    """

    def __init__(
        self,
        is_scarce: Callable[[], bool] = ports_may_be_scarce,
        read: Callable[[Callable[[], bool]], tuple[PortShortage, ...]] = read_all_port_shortages,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_scarce = is_scarce
        self._read = read
        self._rest = WalkRest(clock)
        self._shortages: tuple[PortShortage, ...] = ()

    @property
    def taken(self) -> int:
        """The number of taken ports where most are taken; 0 if there are enough everywhere."""
        return self._shortages[0].count if self._shortages else 0

    def problems(self) -> tuple[Problem, ...]:
        """Returns one problem for each endpoint towards which ports run out."""
        return tuple(map(port_shortage_problem, self._shortages))

    async def look(self) -> None:
        """Walks over the table if it has this many entries and the last walk is long enough ago."""
        if not self._is_scarce():
            self._shortages = ()
            return
        if not self._rest.over:
            return
        stop = threading.Event()
        with self._rest.after():
            try:
                self._shortages = await in_thread(lambda: self._read(stop.is_set), hurry=stop.set)
            except OSError as error:
                self._shortages = ()
                logger.debug("the connection table cannot be read for source ports: %s", error)
