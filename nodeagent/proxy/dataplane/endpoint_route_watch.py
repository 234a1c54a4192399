"""Checks periodically whether this node has a route to the endpoints of its Services, with a bounded part of a core."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing

from nodeagent.model.addresses import Family, family_of, pack_address
from nodeagent.model.frontend import Backend, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.endpoint_routes import EndpointWays, ReadWays, read_ways, way_problems
from nodeagent.proxy.dataplane.walk_rest import WalkRest
from nodeagent.proxy.dataplane.worker_thread import in_thread

SERVICES = 250
"""The number of Services that are checked each time, one after the other."""
MOST = 256
"""The number of addresses that are looked up each time."""
STEP = 100
"""The number of endpoints that are compared before other tasks run: half a millisecond, for which a change may have to wait."""
MOST_COMPARED = 20_000
"""After this number of endpoints no other Service is begun."""
CONFIRM_SECONDS = 1.0
"""After this pause, unreachable endpoints are checked again: one that has just left is no longer listed, or its neighbour answers."""
_PREFIX_BYTES = {Family.IPV4: 3, Family.IPV6: 8}
"""Addresses of other nodes with the same prefix are assumed to have one route: the pods of a node have a /24 or a /64."""

logger = logging.getLogger(__name__)


class EndpointRouteWatch:
    """Keeps the result of the last check. states: returns what is programmed now. read: as `read_ways`; runs in a thread. clock: in
    seconds."""

    def __init__(
        self,
        states: Callable[[], Mapping[ObjectKey, ServiceState]],
        read: ReadWays = read_ways,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = states
        self._read = read
        self._pause = pause
        self._rest = WalkRest(clock)
        self._left: Iterator[ObjectKey] = iter(())
        self._round = 0
        self._lost: dict[Backend, ObjectKey] = {}
        self.last = EndpointWays()

    def problems(self) -> tuple[Problem, ...]:
        """Returns the problems of the routes that were checked."""
        return way_problems(self.last)

    async def look(self) -> None:
        """Checks the endpoints of the next Services, and those that were unreachable before."""
        if not self._rest.over:
            return
        chosen = {**await self._still(self._lost), **await self._chosen()}
        found = await self._ask(chosen)
        if found.lost:
            await self._pause(CONFIRM_SECONDS)
            lost = await self._ask(await self._still({one: chosen[one] for one in found.lost}))
            found = EndpointWays(lost.lost, found.closed)
        self._lost = {one: chosen[one] for one in found.lost}
        self.last = found

    async def _ask(self, chosen: Mapping[Backend, ObjectKey]) -> EndpointWays:
        if not chosen:
            return EndpointWays()
        try:
            with self._rest.after():
                return await in_thread(lambda: self._read(chosen))
        except OSError as error:
            logger.debug("the routes to endpoints cannot be read: %s", error)
            return EndpointWays()

    async def _still(self, endpoints: Mapping[Backend, ObjectKey]) -> dict[Backend, ObjectKey]:
        """Returns those that are still endpoints of their Service."""
        states = self._states()
        services = dict.fromkeys(endpoints.values())
        present = ((key, one) for key in services if (state := states.get(key)) is not None for one in _backends(state))
        return {one: key async for key, one in _in_steps(present) if endpoints.get(one) == key}

    async def _chosen(self) -> dict[Backend, ObjectKey]:
        """Returns endpoints of the next Services: all on this node, and of the others one for each range."""
        found: dict[tuple[object, ...], tuple[Backend, ObjectKey]] = {}
        async with aclosing(_in_steps(self._next_endpoints())) as endpoints:
            async for key, one in endpoints:
                found.setdefault(_range(one), (one, key))
                if len(found) >= MOST:
                    break
        return dict(found.values())

    def _next_endpoints(self) -> Iterator[tuple[ObjectKey, Backend]]:
        """Yields the endpoints of the next Services, those of a Service from another one on in each round."""
        states, compared = self._states(), 0
        if (first_key := next(self._left, None)) is None:
            self._left, self._round = iter(tuple(states)), self._round + 1
            first_key = next(self._left, None)
        for _, key in zip(range(SERVICES), itertools.chain((first_key,), self._left), strict=False):
            if key is None or (state := states.get(key)) is None:
                continue
            backends = list(_backends(state))
            first = self._round % len(backends) if backends else 0
            yield from ((key, one) for one in (*backends[first:], *backends[:first]))
            compared += len(backends)
            if compared >= MOST_COMPARED:
                return


async def _in_steps(endpoints: Iterable[tuple[ObjectKey, Backend]]) -> AsyncGenerator[tuple[ObjectKey, Backend]]:
    """Yields them; other tasks run after each STEP of them."""
    for number, one in enumerate(endpoints, start=1):
        yield one
        if number % STEP == 0:
            await asyncio.sleep(0)


def _backends(state: ServiceState) -> Iterator[Backend]:
    routes = (route for one in state.frontends for route in (one.route, one.short_circuit) if route is not None)
    distinct = {id(route): route for route in routes}
    return (backend for route in distinct.values() for backend in route.backends)


def _range(one: Backend) -> tuple[object, ...]:
    if one.local:
        return ("here", one.address)
    return ("there", pack_address(one.address)[: _PREFIX_BYTES[family_of(one.address)]])
