"""Connections from everywhere to a service, and their results."""

import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Protocol as Interface
from typing import TypeVar

from nodeagent.lab.api import Document
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.lab_plan import CLIENT
from nodeagent.lab.lab_thread import Work
from nodeagent.lab.net.actor_messages import Record
from nodeagent.lab.net.member import Holding, Loading, Member
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.supervisor_messages import LoadSample, ServicePath, WaySample
from nodeagent.model.addresses import Protocol, family_of

HELD_EACH = 5
HELD_TIMEOUT = 1.0
MOST_WORKERS = 60
RATES = (1.0, 2000.0)
"""Lowest and highest number of connections a second; beyond that, the processes that make them distort the result."""


def check_rate(rate: float) -> None:
    """Raises ValueError for a rate that cannot be kept."""
    least, most = RATES
    if not least <= rate <= most:
        raise ValueError(f"--rate {rate:g}: from {least:g} to {most:g}")


def paths_to(cluster: LiveCluster, service: Document, protocol: str = "TCP") -> list[ServicePath]:
    """Returns the paths: from each node and its calling pod to the ClusterIPs; from the client outside to all node
    ports and load-balancer addresses. Raises LabError for a service without a port of this protocol."""
    spec = service["spec"]
    port = next((port for port in spec.get("ports") or [] if port.get("protocol", "TCP") == protocol), None)
    if port is None:
        raise LabError(f"service {service['metadata']['name']} has no {protocol} port")
    clients = {**dict.fromkeys(cluster.callers, "pod"), **dict.fromkeys(cluster.nodes, "node")}
    addresses = [address for address in spec.get("clusterIPs") or [] if address != "None"]
    found = [
        ServicePath(client, role, "ClusterIP", address, port["port"])
        for address in addresses
        for client, role in clients.items()
    ]
    families = set(map(family_of, addresses))
    for _, node in cluster.nodes.values():
        served = [address for address in node.addresses if port.get("nodePort") and family_of(address) in families]
        found += [ServicePath(CLIENT, "outside", "NodePort", address, port["nodePort"]) for address in served]
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    found += [
        ServicePath(CLIENT, "outside", "LoadBalancer", one["ip"], port["port"]) for one in ingress if one.get("ip")
    ]
    if not found:
        raise LabError(f"service {service['metadata']['name']} has no address to connect to")
    return found


def find_service(cluster: LiveCluster, name: str) -> Document:
    """Returns the Service object NAMESPACE/NAME. Raises LabError."""
    namespace, _, rest = name.rpartition("/")
    return cluster.api.call("GET", f"/api/v1/namespaces/{namespace or 'default'}/services/{rest}")


class Stoppable(Interface):
    """Something that runs until it is stopped."""

    def stop(self) -> None: ...


S = TypeVar("S", bound=Stoppable)
T = TypeVar("T")


@asynccontextmanager
async def stopped_at_exit(work: Work, begin: Callable[[], S]) -> AsyncIterator[S]:
    """Starts something with `begin` and stops it at exit, even if the wait for the start was cancelled."""
    started: list[S] = []
    try:
        await work(lambda: started.append(begin()))
        yield started[0]
    finally:
        for one in started:
            await work(one.stop)


class ClusterLoad:
    """New connections on every path, `rate` a second in all, from construction until `stop`.

    The paths take turns at even intervals. There are enough workers to keep the rate even if every connection waits for
    its timeout, up to a limit. With `record`, `records` has every connection after `stop`.
    """

    def __init__(
        self,
        cluster: LiveCluster,
        ways: Sequence[ServicePath],
        protocol: str,
        rate: float,
        timeout: float,
        *,
        record: bool = False,
    ) -> None:
        workers = min(MOST_WORKERS, math.ceil(rate / len(ways) * timeout))
        self.spacing = len(ways) / rate
        """Seconds from one connection of a path to the next."""
        self.began = time.monotonic()
        self.records: list[tuple[ServicePath, Record]] = []
        self._running: list[tuple[ServicePath, Loading]] = []
        self._all = cluster.loads
        with ExitStack() as stack:
            stack.callback(self.stop)  # if one fails, those that have started are stopped
            for number, way in enumerate(ways):
                member: Member = cluster.world[way.client]
                loading = member.load(
                    way.address,
                    way.port,
                    Protocol[protocol],
                    interval=workers * self.spacing,
                    workers=workers,
                    timeout=timeout,
                    delay=number / rate,
                    record=record,
                )
                self._running.append((way, loading))
            stack.pop_all()
        self._all.append(self)

    def sample(self) -> LoadSample:
        """Returns what has happened since the start."""
        found, horizon = [], time.monotonic()
        for way, loading in self._running:
            report = loading.report()
            failures = {failure.value: count for failure, count in report.failures.items()}
            last_answer = max(report.last.values(), default=0.0)
            found.append(
                WaySample(
                    way, report.names, failures, report.latencies, report.slowest, last_answer, report.last_failure
                )
            )
            horizon = min(horizon, report.horizon)
        at = time.monotonic()
        return LoadSample(at, at - self.began, tuple(found), horizon)

    def stop(self) -> None:
        """Ends it."""
        running, self._running = self._running, []
        if self in self._all:
            self._all.remove(self)

        def ended(way: ServicePath, loading: Loading) -> list[tuple[ServicePath, Record]]:
            return [(way, record) for record in loading.stop().records]

        for found in in_parallel_by_member([(way.client, partial(ended, way, loading)) for way, loading in running]):
            self.records += found


class HeldConnections:
    """Connections that stay open: from each node's calling pod to the ClusterIPs, from the client to everything."""

    def __init__(self, cluster: LiveCluster, ways: Sequence[ServicePath], protocol: str) -> None:
        self._held: list[tuple[str, Holding]] = []
        with ExitStack() as stack:
            stack.callback(self.stop)
            for way in ways:
                if way.role != "node":
                    holding = cluster.world[way.client].hold(
                        way.address, way.port, Protocol[protocol], count=HELD_EACH, timeout=HELD_TIMEOUT
                    )
                    self._held.append((way.client, holding))
            stack.pop_all()
        self.opened = sum(holding.opened.names.total() for _, holding in self._held)

    def count_alive(self) -> int:
        """Returns how many of the open connections still answer."""
        surveys = in_parallel_by_member([(client, holding.ask) for client, holding in self._held])
        return sum(survey.names.total() for survey in surveys)

    def stop(self) -> None:
        """Closes them."""
        held, self._held = self._held, []
        in_parallel_by_member([(client, holding.stop) for client, holding in held])


def in_parallel_by_member(requests: Sequence[tuple[str, Callable[[], T]]]) -> list[T]:
    """Runs the requests to members, those to different members in parallel. Returns their results; requests that fail
    with LabError are left out."""
    todo: dict[str, list[Callable[[], T]]] = {}
    for member, request in requests:
        todo.setdefault(member, []).append(request)

    def do(each: list[Callable[[], T]]) -> list[T]:
        done: list[T] = []
        for request in each:
            with suppress(LabError):
                done.append(request())
        return done

    with ThreadPoolExecutor(max_workers=max(1, len(todo))) as threads:
        return [result for results in threads.map(do, todo.values()) for result in results]
