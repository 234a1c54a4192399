"""Health check ports of services: keeps an HTTP listener for each.

A load balancer asks at healthCheckNodePort whether this node has endpoints of the service (kube-proxy,
pkg/proxy/healthcheck/service_health.go); path and method do not matter. A listener of a family opens after a pass
succeeded for that family, so that no load balancer sends traffic for which there are no rules yet.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.reports import PassReport
from nodeagent.proxy.observe.health_ports import Claim, HealthPorts, listening_addresses
from nodeagent.runtime.serving.http import RETRY_SECONDS, HttpListeners, Report, listening_socket, reason_of
from nodeagent.runtime.serving.responses import JSON_HEADERS, NOT_FOUND, Request, Response

FAILED = "FailedToStartServiceHealthcheck"
"""The reason of kube-proxy's event."""
PORTS = range(1, 65536)
SPACING_SECONDS = 1.0
"""Between attempts at a port that could not be bound, however many passes there are."""

logger = logging.getLogger(__name__)


def service_response(key: ObjectKey, local_endpoints: int, *, healthy: bool) -> Response:
    """Returns the answer for a service with this many local ready endpoint addresses, by an agent in this state."""
    document = {
        "service": {"namespace": key.namespace, "name": key.name},
        "localEndpoints": local_endpoints,
        "serviceProxyHealthy": healthy,
    }
    headers = {**JSON_HEADERS, "X-Load-Balancing-Endpoint-Weight": str(local_endpoints)}
    status = 200 if local_endpoints and healthy else 503
    return Response(status, headers, json.dumps(document, separators=(",", ":")).encode())


class ServiceHealth:
    """Opens and closes the listeners.

    is_healthy: called at every request. report: called with all problems, at every change.
    retry_seconds: between attempts at a port that is in use.
    """

    def __init__(
        self,
        *,
        is_healthy: Callable[[], bool],
        report: Report,
        retry_seconds: float = RETRY_SECONDS,
        spacing_seconds: float = SPACING_SECONDS,
    ) -> None:
        self._is_healthy = is_healthy
        self._report = report
        self._retry_seconds = retry_seconds
        self._spacing_seconds = spacing_seconds
        self._ports = HealthPorts()
        self._programmed: frozenset[Family] = frozenset()
        self._node_port_cidrs: tuple[str, ...] = ()
        self._node_addresses: frozenset[str] | None = None
        self._wanted: dict[Family, tuple[str, ...]] = {}
        self._dirty: set[int] = set()
        self._open: dict[int, dict[str, asyncio.Server]] = {}
        self._failed: set[int] = set()
        self._problems_by_port: dict[int, tuple[Problem, ...]] = {}
        self._reported: tuple[Problem, ...] = ()
        self._wake = asyncio.Event()

    def passed(self, report: PassReport) -> None:
        """Takes in what a pass changed; costs no more than the changes."""
        self._dirty |= self._ports.update(report.changed)
        if not report.programmed <= self._programmed or report.node.node_port_cidrs != self._node_port_cidrs:
            self._programmed |= report.programmed
            self._node_port_cidrs = report.node.node_port_cidrs
            self._choose_addresses()
        if self._dirty or self._failed:
            self._wake.set()

    def node_addresses_changed(self, addresses: Iterable[str]) -> None:
        """Takes in all addresses of the node; listeners at some of them are updated."""
        if self._node_addresses is None:
            self._dirty.update(self._ports.ports)
        self._node_addresses = frozenset(addresses)
        self._choose_addresses()
        self._wake.set()

    async def run(self) -> None:
        """Keeps the listeners up to date until cancelled, and then closes all."""
        listeners = HttpListeners(self._answer)
        loop = asyncio.get_running_loop()
        attempted = loop.time()
        try:
            while True:
                await self._wait(attempted)
                if loop.time() >= attempted + self._spacing_seconds:
                    self._dirty |= self._failed
                again = bool(self._dirty & self._failed)
                failed = frozenset(self._failed)
                while self._dirty:
                    await self._update_or_report(self._dirty.pop(), listeners)
                if again or self._failed - failed:
                    attempted = loop.time()
                self._report_changes()
        finally:
            self._open.clear()
            await listeners.close()

    def _choose_addresses(self) -> None:
        wanted = {
            family: listening_addresses(family, self._node_port_cidrs, self._node_addresses or ())
            for family in self._programmed
        }
        if wanted != self._wanted:
            self._wanted = wanted
            self._dirty.update(self._ports.ports)

    async def _wait(self, attempted: float) -> None:
        """Waits until there is something to do: at once after a change, later after a failure."""
        patience = None if not self._failed else attempted + self._retry_seconds
        try:
            async with asyncio.timeout_at(patience):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _update_or_report(self, port: int, listeners: HttpListeners) -> None:
        """Updates the listeners of one port; any error is a problem of its owner only."""
        try:
            await self._update_listeners(port, listeners)
        except Exception as error:
            owner = self._ports.owner(port)
            subject = f"Service {owner.key}" if owner is not None else f"health check port {port}"
            if port not in self._failed:
                logger.exception("health check port %d of %s cannot be served", port, subject)
            self._failed.add(port)
            detail = f"internal error at port {port}: {type(error).__name__}: {error}"
            self._problems_by_port[port] = (Problem(subject, FAILED, detail),)

    async def _update_listeners(self, port: int, listeners: HttpListeners) -> None:
        """Opens and closes the listeners of one port as its owner wants."""
        owner = self._ports.owner(port)
        opened = self._open.setdefault(port, {})
        wanted = self._addresses_for(port, owner)
        for address in opened.keys() - wanted:
            listeners.stop(opened.pop(address))
            logger.debug("health check port closed address=%s port=%d", address, port)
        failures = {}
        for address in wanted:
            if address in opened:
                continue
            try:
                opened[address] = await listeners.listen(listening_socket(address, port))
            except OSError as error:
                failures[address] = reason_of(error)
        if not opened:
            del self._open[port]
        (self._failed.add if failures else self._failed.discard)(port)
        problems = self._problems_of(port, owner, failures)
        if problems:
            self._problems_by_port[port] = problems
        else:
            self._problems_by_port.pop(port, None)

    def _addresses_for(self, port: int, owner: Claim | None) -> tuple[str, ...]:
        if owner is None or port not in PORTS:
            return ()
        return tuple(address for family in owner.local_endpoints for address in self._wanted.get(family, ()))

    def _problems_of(self, port: int, owner: Claim | None, failures: Mapping[str, str]) -> tuple[Problem, ...]:
        if owner is None:
            return ()
        if port not in PORTS:
            claimants = (owner.key, *self._ports.losers(port))
            return tuple(
                Problem(f"Service {key}", FAILED, f"health check port {port} is not a port number") for key in claimants
            )
        problems = [
            Problem(f"Service {loser}", FAILED, f"health check port {port} belongs to Service {owner.key}")
            for loser in self._ports.losers(port)
        ]
        if failures:
            listed = ", ".join(f"{address}: {reason}" for address, reason in failures.items())
            detail = f"cannot listen on port {port} ({listed}); tried again every {self._retry_seconds:g} seconds"
            problems.append(Problem(f"Service {owner.key}", FAILED, detail))
        for family in owner.local_endpoints:
            if self._node_addresses is not None and self._wanted.get(family) == ():
                detail = f"no {family.value} address of this node answers node ports: port {port} is closed there"
                problems.append(Problem(f"Service {owner.key}", FAILED, detail))
        return tuple(problems)

    def _report_changes(self) -> None:
        problems = tuple(sorted(problem for found in self._problems_by_port.values() for problem in found))
        if problems != self._reported:
            self._reported = problems
            self._report(problems)

    def _answer(self, request: Request) -> Response:
        owner = self._ports.owner(request.port)
        if owner is None or request.family not in owner.local_endpoints:
            return NOT_FOUND
        return service_response(owner.key, owner.local_endpoints[request.family], healthy=self._is_healthy())
