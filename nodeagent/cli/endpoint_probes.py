"""Connects to endpoints from this node, to find out whether they accept connections."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from nodeagent.diagnosis.explain.kernel import Probe, ProbeResult
from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.diagnosis.trace.routes import Leg, RouteOutcome
from nodeagent.model.addresses import Protocol, endpoint_text, family_of
from nodeagent.model.frontend import Backend, ServiceState
from nodeagent.model.names import ObjectKey

MOST = 16
"""The most endpoints of one Service that are tried, evenly spread over the list."""
MOST_OF_ALL, AT_ONCE = 800, 400
"""The most endpoints of all Services together, and in parallel: each is an open file."""
SECONDS = 1.0
UDP_SECONDS = 0.3
"""Seconds to wait for the ICMP error after a datagram, which arrives at once or never."""
Tried = tuple[Backend, Protocol]
T = TypeVar("T")
_PROBED = (Protocol.TCP, Protocol.UDP)
_ANSWERS = {
    errno.ECONNREFUSED: ProbeResult.REFUSED,
    errno.EPERM: ProbeResult.STOPPED,
    errno.EADDRNOTAVAIL: ProbeResult.NO_PORT,
}
_UNANSWERED = (ProbeResult.SILENT, ProbeResult.UNREACHABLE)
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN})


def probe_endpoints(state: ServiceState, ports: Iterable[str]) -> tuple[Probe, ...]:
    """Connects to the endpoints that are used, closes each connection at once, and returns the results. For UDP it sends an
    empty datagram, which only shows whether nobody listens."""
    tried = _endpoints_to_try(state, set(ports), MOST)
    return _probed(tried)


def probe_services(states: Mapping[ObjectKey, ServiceState]) -> dict[ObjectKey, tuple[Probe, ...]]:
    """Like `probe_endpoints`, for all ports of many Services: at most MOST_OF_ALL connections, evenly spread."""
    each = min(MOST, max(1, MOST_OF_ALL // max(1, len(states))))
    tried = {key: _endpoints_to_try(states[key], None, each) for key in _evenly_spread(list(states), MOST_OF_ALL)}
    found = iter(_probed([one for those in tried.values() for one in those]))
    return {key: tuple(islice(found, len(those))) for key, those in tried.items()}


def _endpoints_to_try(state: ServiceState, names: set[str] | None, most: int) -> list[Tried]:
    """Returns at most `most` endpoints of the named ports (None: all ports), evenly spread."""
    backends: dict[tuple[Backend, Protocol], None] = {}
    for one in state.frontends:
        if one.protocol in _PROBED and (names is None or one.service_port.port in names):
            for route in (one.route, one.short_circuit):
                backends.update(
                    dict.fromkeys((each, one.protocol) for each in (() if route is None else route.backends))
                )
    return _evenly_spread(sorted(backends, key=lambda one: (one[0].address, one[0].port, one[1])), most)


def _evenly_spread(all_of_them: Sequence[T], most: int) -> list[T]:
    count = min(most, len(all_of_them))
    return [all_of_them[number * len(all_of_them) // count] for number in range(count)]


def _probed(tried: list[Tried]) -> tuple[Probe, ...]:
    found = asyncio.run(_probe_all(tried))
    if not any(one.answer in _UNANSWERED for one in found):
        return found
    return tuple(_with_kernel_reasons(found, [backend for backend, _ in tried]))


def _with_kernel_reasons(found: Iterable[Probe], tried: Iterable[Backend]) -> Iterator[Probe]:
    """Yields the probes. Those without an answer get a detail from the kernel's routes and neighbour entries."""
    with KernelRoutes() as routes:
        for one, backend in zip(found, tried, strict=True):
            explained = one
            if one.answer in _UNANSWERED:
                with suppress(OSError):
                    explained = _with_kernel_reason(routes, one, backend)
            yield explained


def _with_kernel_reason(routes: KernelRoutes, one: Probe, backend: Backend) -> Probe:
    """Returns the probe with what the kernel knows of the route and the next hop. Raises OSError."""
    address = backend.address
    route = routes.route(Leg(address))
    if backend.local and route.gateway:
        detail = f"{address} is on this node, and the route to it leads {route}: its own interface or route is gone"
        return Probe(one.endpoint, ProbeResult.UNREACHABLE, detail)
    if route.way is not RouteOutcome.OUT and route.reason:
        return Probe(one.endpoint, ProbeResult.UNREACHABLE, route.reason)
    beyond = routes.beyond(route, address)
    if beyond.way is not RouteOutcome.OUT and beyond.reason:
        return Probe(one.endpoint, ProbeResult.UNREACHABLE, beyond.reason)
    hop = route.gateway or address
    if routes.is_entered(route, address):
        detail = (
            f"the link address of {hop} on {route.interface} was entered by a program or by hand: ip neigh show {hop}"
        )
        return Probe(one.endpoint, one.answer, f"{one.detail}; {detail}")
    if routes.has_answered(route, address):
        return Probe(one.endpoint, one.answer, f"{one.detail}; {hop} is there: what drops it is there or behind")
    return one


async def _probe_all(backends: list[Tried]) -> tuple[Probe, ...]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def probe(one: Backend, of: Protocol) -> Probe:
        async with slots:
            return await (_probe(one) if of is Protocol.TCP else _probe_udp(one))

    return tuple(await asyncio.gather(*(probe(one, of) for one, of in backends)))


async def _probe_udp(backend: Backend) -> Probe:
    name = endpoint_text(backend.address, backend.port)
    with socket.socket(family_of(backend.address).socket_family, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect((backend.address, backend.port))
            asking.send(b"")
            async with asyncio.timeout(UDP_SECONDS):
                await asyncio.get_running_loop().sock_recv(asking, 1)
        except TimeoutError:
            return Probe(name, ProbeResult.UNKNOWN)
        except OSError as error:
            return _failed(name, error, ProbeResult.UNKNOWN)
    return Probe(name, ProbeResult.ACCEPTED)


def _failed(name: str, error: OSError, otherwise: ProbeResult) -> Probe:
    words = os.strerror(error.errno) if error.errno else str(error)
    answer = _ANSWERS.get(error.errno or 0)
    if answer is not None:
        return Probe(name, answer, words)
    return Probe(name, ProbeResult.UNREACHABLE if error.errno in _UNREACHABLE else otherwise, words)


async def _probe(backend: Backend) -> Probe:
    name = endpoint_text(backend.address, backend.port)
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(backend.address, backend.port)
    except TimeoutError:
        return Probe(name, ProbeResult.SILENT, f"within {SECONDS:g} s")
    except OSError as error:
        return _failed(name, error, ProbeResult.SILENT)
    writer.close()
    return Probe(name, ProbeResult.ACCEPTED)
