"""A cluster of values and drivers that write down what they receive, for tests of the engine alone."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.frontend import NodeState, ServiceState, UdpPort
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Node,
    ObjectMeta,
    Service,
    ServiceCIDR,
    ServicePort,
    ServiceSpec,
)
from nodeagent.model.problem import Problem
from nodeagent.model.reports import InterfaceReport, PassReport, TableReport
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.engine.sync import Engine, Timing
from nodeagent.proxy.translate.node_state import TranslationOptions

from .virtual_time import run_in_virtual_time

QUICK = Timing(guard_period_seconds=0.01, backoff=Backoff(first_seconds=0.001, longest_seconds=0.01))


class Cluster:
    """A snapshot that a test edits, telling the queue what it edited."""

    def __init__(self, changes: ChangeQueue) -> None:
        self.services: dict[ObjectKey, Service] = {}
        self.node: Node | None = None
        self.service_cidrs: tuple[ServiceCIDR, ...] = ()
        self._slices: dict[ObjectKey, tuple[EndpointSlice, ...]] = {}
        self._changes = changes

    def slices_of(self, service: ObjectKey) -> Collection[EndpointSlice]:
        return self._slices.get(service, ())

    def put(self, name: str, cluster_ip: str, *endpoints: str, protocol: str = "TCP") -> ObjectKey:
        """A service with one port and these endpoints, in place of the one of that name."""
        key = ObjectKey("default", name)
        port = ServicePort(80, name="p", protocol=protocol)
        self.services[key] = Service(
            ObjectMeta(name=name, namespace="default"), ServiceSpec(cluster_ip=cluster_ip, ports=(port,))
        )
        self._slices[key] = (
            EndpointSlice(
                ObjectMeta(name=f"{name}-x", namespace="default", labels={"kubernetes.io/service-name": name}),
                "IPv6" if ":" in cluster_ip else "IPv4",
                tuple(Endpoint(addresses=(address,)) for address in endpoints),
                (EndpointPort("p", 8080, protocol),),
            ),
        )
        self._changes.service_changed(key)
        return key

    def delete(self, name: str) -> None:
        key = ObjectKey("default", name)
        del self.services[key], self._slices[key]
        self._changes.service_changed(key)


@dataclass
class RecordingTable:
    """A table driver that keeps every call; `fail_with` is raised as often as it has entries. `hang`: for ever."""

    family: Family
    log: list[str]
    fail_with: list[Exception] = field(default_factory=list)
    calls: list[dict[ObjectKey, ServiceState | None]] = field(default_factory=list)
    interfered: bool = False
    look_fails_with: list[Exception] = field(default_factory=list)
    looks: int = 0
    compared: int = 0
    problems: tuple[Problem, ...] = ()
    hang: bool = False
    read_back: bool = False
    repairs: int = 0
    other_owner: bool = False

    async def sync(
        self, changes: Mapping[ObjectKey, ServiceState | None], node: NodeState, *, compare: bool = False
    ) -> TableReport:
        self.calls.append(dict(changes))
        self.compared += compare
        if self.hang:
            await asyncio.Event().wait()
        if self.fail_with:
            raise self.fail_with.pop(0)
        if changes:
            self.log.append(f"table {self.family.value}")
        return TableReport(len(changes), len(changes) + self.repairs, read_back=self.read_back, problems=self.problems)

    async def changed_by_others(self) -> bool:
        self.looks += 1
        if self.look_fails_with:
            raise self.look_fails_with.pop(0)
        interfered, self.interfered = self.interfered, False
        return interfered

    def has_other_owner(self) -> bool:
        return self.other_owner


@dataclass
class RecordingInterface:
    log: list[str]
    vips: set[str] = field(default_factory=set)
    fail_with: list[Exception] = field(default_factory=list)
    complete: bool = True
    node_addresses: tuple[str, ...] = ()

    async def sync(self, vips: frozenset[str], node_addresses: tuple[str, ...] = ()) -> InterfaceReport:
        if self.fail_with:
            raise self.fail_with.pop(0)
        self.log.append("interface sync")
        self.node_addresses = node_addresses
        self.vips = set(vips)
        return self._report()

    async def retain(self, vips: frozenset[str]) -> InterfaceReport:
        if self.fail_with:
            raise self.fail_with.pop(0)
        if self.vips - vips:
            self.log.append(f"interface {' '.join(f'-{vip}' for vip in sorted(self.vips - vips))}")
        self.vips &= vips
        return self._report()

    async def apply(self, add: frozenset[str], remove: frozenset[str]) -> InterfaceReport:
        self.log.append(
            f"interface {' '.join([f'+{vip}' for vip in sorted(add)] + [f'-{vip}' for vip in sorted(remove)])}"
        )
        self.vips = (self.vips | add) - remove
        return self._report()

    def _report(self) -> InterfaceReport:
        missing = Problem("service interface", "AddressNotProgrammed", "the kernel refused an address")
        return InterfaceReport(problems=() if self.complete else (missing,))


@dataclass
class Recorder:
    """Observer, flow cleaner and heartbeat: keeps reports, UDP ports and the families to look at, counts beats."""

    reports: list[PassReport] = field(default_factory=list)
    udp: list[UdpPort] = field(default_factory=list)
    looked_again: list[Family] = field(default_factory=list)
    beats: int = 0

    def beat(self) -> None:
        self.beats += 1

    def passed(self, report: PassReport) -> None:
        self.reports.append(report)

    def submit(self, udp_ports: Iterable[UdpPort]) -> None:
        self.udp.extend(udp_ports)

    def look_again(self, family: Family) -> None:
        self.looked_again.append(family)


class Bench:
    """An engine with everything around it, inside a running loop."""

    def __init__(self, timing: Timing = QUICK, *, families: tuple[Family, ...] = (Family.IPV4,)) -> None:
        self.changes = ChangeQueue(asyncio.get_running_loop().time)
        self.cluster = Cluster(self.changes)
        self.log: list[str] = []
        self.tables = [RecordingTable(family, self.log) for family in families]
        self.interface = RecordingInterface(self.log)
        self.recorder = Recorder()
        self.engine = Engine(
            snapshot=self.cluster,
            changes=self.changes,
            options=TranslationOptions(node_name="node-a", families=families, bind_address="192.0.2.1"),
            tables=self.tables,
            interface=self.interface,
            flows=self.recorder,
            observer=self.recorder,
            heartbeat=self.recorder,
            timing=timing,
        )

    @property
    def table(self) -> RecordingTable:
        return self.tables[0]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the engine go on until the condition holds, for ten seconds of its time at most."""
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - the condition is over plain values of many owners
                await asyncio.sleep(0.001)


RunEngine = Callable[..., None]


@pytest.fixture
def with_engine() -> RunEngine:
    """Run a scenario against a started engine, in virtual time; the engine is cancelled when the scenario ends."""

    def run(
        scenario: Callable[[Bench], Awaitable[None]], timing: Timing = QUICK, **options: tuple[Family, ...]
    ) -> None:
        async def main() -> None:
            bench = Bench(timing, **options)
            running = asyncio.ensure_future(bench.engine.run())
            try:
                await scenario(bench)
            finally:
                running.cancel()
                await asyncio.wait([running])
            if not running.cancelled() and (error := running.exception()) is not None:
                raise error

        run_in_virtual_time(main())

    return run
