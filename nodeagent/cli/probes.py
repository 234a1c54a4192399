"""Connections from this node to endpoints: does anybody listen there?"""

import asyncio
import errno
import os
from collections.abc import Iterable

from nodeagent.explain.kernel import Answer, Probe
from nodeagent.model.addresses import Protocol, endpoint_text
from nodeagent.model.frontend import Backend, ServiceState

MOST = 16
"""Of many endpoints so many are tried."""
SECONDS = 1.0
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN})


def probe_endpoints(state: ServiceState, ports: Iterable[str]) -> tuple[Probe, ...]:
    """What connections to the TCP endpoints that are used come to; each is closed at once. UDP cannot be asked."""
    names = set(ports)
    backends: dict[Backend, None] = {}
    for one in state.frontends:
        if one.protocol is Protocol.TCP and one.service_port.port in names:
            for route in (one.route, one.short_circuit):
                backends.update(dict.fromkeys(() if route is None else route.backends))
    return asyncio.run(_probe_all(list(backends)[:MOST]))


async def _probe_all(backends: list[Backend]) -> tuple[Probe, ...]:
    return tuple(await asyncio.gather(*map(_probe, backends)))


async def _probe(backend: Backend) -> Probe:
    name = endpoint_text(backend.address, backend.port)
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(backend.address, backend.port)
    except TimeoutError:
        return Probe(name, Answer.SILENT, f"within {SECONDS:g} s")
    except OSError as error:
        words = os.strerror(error.errno) if error.errno else str(error)
        if error.errno == errno.ECONNREFUSED:
            return Probe(name, Answer.REFUSED, words)
        return Probe(name, Answer.UNREACHABLE if error.errno in _UNREACHABLE else Answer.SILENT, words)
    writer.close()
    return Probe(name, Answer.ACCEPTED)
