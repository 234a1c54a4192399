"""One service with 5,000 endpoints, two ports and three kinds of address: a change costs what changes, and nothing that
the agent does with it holds the event loop."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import UdpPort
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.model.reports import CleaningReport, DriftReport, PassReport, PurgeReport
from nodeagent.proxy.dataplane.conntrack_cleaner import ConntrackCleaner
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.interface import ServiceInterface
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.engine.sync import Engine, Timing
from nodeagent.proxy.observe.service_health import ServiceHealth
from nodeagent.proxy.observe.status_line import StatusLine
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.translate.node_state import TranslationOptions
from tests.harness.stopwatch import once_within

pytestmark = pytest.mark.kernel

T = TypeVar("T")
ENDPOINTS, IN_A_SLICE, CHANGES = 5000, 1000, 10
VIPS = {Family.IPV4: ("10.96.0.1", "198.51.100.7"), Family.IPV6: ("fd00:96::1", "2001:db8::7")}
PODS = {Family.IPV4: "10.{}.{}.{}", Family.IPV6: "fd00:{}::{:x}:{:x}"}


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


@dataclass
class Observers:
    """Everybody who hears of a pass on the loop."""

    reports: list[PassReport] = field(default_factory=list)
    status: StatusLine = field(default_factory=lambda: StatusLine("node"))
    health: ServiceHealth = field(
        default_factory=lambda: ServiceHealth(is_healthy=lambda: True, report=lambda problems: None)
    )

    def __post_init__(self) -> None:
        self.cleaner = ConntrackCleaner(self)

    def passed(self, report: PassReport) -> None:
        self.status.after_pass(report, 0)
        self.health.passed(report)
        self.reports.append(report)

    def submit(self, udp_ports: Iterable[UdpPort]) -> None:
        self.cleaner.submit(udp_ports)

    def look_again(self, family: Family) -> None:
        self.cleaner.look_again(family)

    def conntrack_cleaned(self, report: CleaningReport) -> None:
        """Nobody asks."""

    def affinity_purged(self, report: PurgeReport) -> None:
        """Nobody asks."""

    def drift_found(self, report: DriftReport) -> None:
        """Nobody asks."""

    def beat(self) -> None:
        """Nobody asks."""


def big_service(family: Family, *, protocol: str, sticky: bool) -> Service:
    cluster_ip, external = VIPS[family]
    ports = [
        {"name": "a", "port": 80, "nodePort": 30080, "protocol": protocol},
        {"name": "b", "port": 443, "nodePort": 30443, "protocol": protocol},
    ]
    spec = {"clusterIP": cluster_ip, "type": "LoadBalancer", "externalIPs": [external], "ports": ports}
    fields: dict[str, Any] = {"metadata": {"name": "big", "namespace": "default"}, "spec": spec}
    spec["sessionAffinity"] = "ClientIP" if sticky else "None"
    return msgspec.convert(fields, Service)


def slices(family: Family, protocol: str) -> list[EndpointSlice]:
    return [
        msgspec.convert(
            {
                "metadata": {
                    "name": f"big-{number}",
                    "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "big"},
                },
                "addressType": family.value,
                "ports": [
                    {"name": "a", "port": 8080, "protocol": protocol},
                    {"name": "b", "port": 8443, "protocol": protocol},
                ],
                "endpoints": [
                    {"addresses": [PODS[family].format(number, n >> 8, n & 255)], "nodeName": f"node-{n % 100}"}
                    for n in range(1, IN_A_SLICE + 1)
                ],
            },
            EndpointSlice,
        )
        for number in range(ENDPOINTS // IN_A_SLICE)
    ]


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize(
    ("protocol", "sticky"),
    [
        pytest.param("TCP", False, id="TCP"),
        pytest.param("UDP", False, id="UDP"),
        pytest.param("TCP", True, id="sticky"),
    ],
)
def test_nothing_holds_the_loop(namespace: Namespace, family: Family, protocol: str, sticky: bool) -> None:
    async def story() -> tuple[float, list[PassReport]]:
        loop = asyncio.get_running_loop()
        changes, observers = ChangeQueue(loop.time), Observers()
        store = ClusterStore(changes)
        engine = Engine(
            snapshot=store,
            changes=changes,
            options=TranslationOptions(node_name="node", families=(family,), bind_address="192.0.2.1"),
            tables=[TableDriver(family, Ruleset(), ProgramOptions(PodDetection.CIDR), Ownership.PLAIN, observers)],
            interface=ServiceInterface(),
            flows=observers,
            observer=observers,
            heartbeat=observers,
            timing=Timing(guard_period_seconds=60.0),
        )
        held = slices(family, protocol)
        store.replace(Service, [big_service(family, protocol=protocol, sticky=sticky)])
        store.replace(EndpointSlice, held)

        async def work() -> None:
            async with asyncio.timeout(120):
                await until(lambda: len(observers.reports) == 1)
                for turn in range(CHANGES):
                    whole = held[turn % len(held)]
                    endpoints = tuple(whole.endpoints or ())
                    for version in (
                        replace(whole, endpoints=endpoints[: turn * 99] + endpoints[turn * 99 + 1 :]),
                        whole,
                    ):
                        seen = len(observers.reports)
                        store.put(version)
                        await until(lambda seen=seen: len(observers.reports) > seen)  # type: ignore[misc]

        tasks = [asyncio.create_task(engine.run()), asyncio.create_task(observers.cleaner.run())]
        held_longest = await longest_hold(work())
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return held_longest, observers.reports

    def attempt() -> float:
        namespace.shell("nft flush ruleset")
        held_longest, reports = namespace.run(lambda: asyncio.run(story()))
        assert reports[0].touched > 6 * ENDPOINTS
        assert max(report.touched for report in reports[1:]) <= 6 * 3 + 2, (
            "a class and two slots for each frontend, and where a node port's connections went"
        )
        assert all(report.ok for report in reports)
        return held_longest

    once_within(0.05, attempt, "a turn of the loop, in seconds", tries=3)


async def longest_hold(work: Awaitable[None]) -> float:
    """The most processor time, in seconds, that the loop's thread spent between two turns; others may have the rest. What earlier tests
    left is not for a collection of garbage to walk through."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    gc.freeze()
    try:
        watching = asyncio.create_task(watch())
        await work
        watching.cancel()
    finally:
        gc.unfreeze()
    return longest


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the condition is over plain values
        await asyncio.sleep(0.001)
