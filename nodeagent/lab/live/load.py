"""Connections from everywhere to a service, and what became of them."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol as Interface
from typing import TypeVar

from msgspec import Struct

from nodeagent.lab.live.api import Document
from nodeagent.lab.live.cluster import LiveCluster
from nodeagent.lab.live.plan import CLIENT, endpoint_text
from nodeagent.lab.live.requests import LoadSample, TargetSample
from nodeagent.lab.member import Holding, Loading, Member
from nodeagent.lab.namespaces import LabError
from nodeagent.model.addresses import Protocol, family_of

HELD_EACH = 5
HELD_TIMEOUT = 1.0
MOST_WORKERS = 60


T = TypeVar("T")


class Work(Interface):
    """Does something that blocks, in the thread of the lab."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


class Target(Struct, frozen=True):
    """One way to a service: who connects, to what kind of address."""

    client: str
    kind: str
    address: str
    port: int

    @property
    def text(self) -> str:
        """What is connected to."""
        return f"{self.kind} {endpoint_text(self.address, self.port)}"


def targets(cluster: LiveCluster, service: Document, protocol: str = "TCP") -> list[Target]:
    """From each node's own pod and each node to the ClusterIPs; from the client outside to all node ports and
    load-balancer addresses. Raises LabError for a service without a port of this protocol.
    """
    spec = service["spec"]
    port = next((port for port in spec.get("ports") or [] if port.get("protocol", "TCP") == protocol), None)
    if port is None:
        raise LabError(f"service {service['metadata']['name']} has no {protocol} port")
    found = []
    for address in spec.get("clusterIPs") or []:
        if address != "None":
            clients = (*cluster.callers, *cluster.nodes)
            found += [Target(client, "ClusterIP", address, port["port"]) for client in clients]
    families = {family_of(target.address) for target in found}
    for _, node in cluster.nodes.values():
        served = [address for address in node.addresses if port.get("nodePort") and family_of(address) in families]
        found += [Target(CLIENT, "NodePort", address, port["nodePort"]) for address in served]
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    found += [Target(CLIENT, "LoadBalancer", one["ip"], port["port"]) for one in ingress if one.get("ip")]
    if not found:
        raise LabError(f"service {service['metadata']['name']} has no address to connect to")
    return found


def find_service(cluster: LiveCluster, name: str) -> Document:
    """The Service object NAMESPACE/NAME. Raises LabError."""
    namespace, _, rest = name.rpartition("/")
    return cluster.api.call("GET", f"/api/v1/namespaces/{namespace or 'default'}/services/{rest}")


class Stoppable(Interface):
    """Something that goes on until it is stopped."""

    def stop(self) -> None: ...


S = TypeVar("S", bound=Stoppable)


@asynccontextmanager
async def going_on(work: Work, begin: Callable[[], S]) -> AsyncIterator[S]:
    """What `begin` starts, stopped in the end: also when the wait for its start was cancelled."""
    starting = asyncio.ensure_future(work(begin))
    try:
        yield await asyncio.shield(starting)
    finally:
        await work((await starting).stop)


class ClusterLoad:
    """New connections on every way, `rate` a second in all; started when made, until `stop`.

    There are enough workers to keep the rate while every connection waits until its timeout, up to a limit.
    """

    def __init__(
        self, cluster: LiveCluster, ways: Sequence[Target], protocol: str, rate: float, timeout: float
    ) -> None:
        workers = min(MOST_WORKERS, math.ceil(rate / len(ways) * timeout))
        interval = workers * len(ways) / rate
        self._began = time.monotonic()
        self._running: list[tuple[Target, Loading]] = []
        for way in ways:
            member: Member = cluster.world[way.client]
            loading = member.load(
                way.address, way.port, Protocol[protocol], interval=interval, workers=workers, timeout=timeout
            )
            self._running.append((way, loading))

    def sample(self) -> LoadSample:
        """What has happened since it began."""
        found, last, horizon = [], 0.0, time.monotonic()
        for way, loading in self._running:
            report = loading.report()
            failures = {failure.value: count for failure, count in report.failures.items()}
            found.append(TargetSample(way.client, way.text, report.names, failures, report.latencies, report.slowest))
            last = max(last, report.last_failure)
            horizon = min(horizon, report.horizon)
        at = time.monotonic()
        return LoadSample(at, at - self._began, tuple(found), last, horizon)

    def stop(self) -> None:
        """End it."""
        for _, loading in self._running:
            with suppress(LabError):
                loading.stop()
        self._running = []


class HeldConnections:
    """Connections that stay open: from each node's own pod to the ClusterIP, from the client to each node port."""

    def __init__(self, cluster: LiveCluster, ways: Sequence[Target]) -> None:
        chosen = [way for way in ways if way.client in (*cluster.callers, CLIENT)]
        self._held: list[Holding] = []
        for way in chosen:
            self._held.append(
                cluster.world[way.client].hold(way.address, way.port, count=HELD_EACH, timeout=HELD_TIMEOUT)
            )
        self.opened = sum(len(held.opened) - held.opened.failures.total() for held in self._held)

    def count_alive(self) -> int:
        """How many still answer."""
        alive = 0
        for held in self._held:
            survey = held.ask()
            alive += len(survey) - survey.failures.total()
        return alive

    def stop(self) -> None:
        """Close them."""
        for held in self._held:
            with suppress(LabError):
                held.stop()
        self._held = []
