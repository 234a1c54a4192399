"""Through which files a change of a Service goes, from the line of a watch to the netlink message."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import UdpPort
from nodeagent.model.objects import EndpointSlice, Service
from nodeagent.model.reports import DriftReport, PassReport, PurgeReport
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.engine.sync import Engine, Timing
from nodeagent.proxy.observe.health_monitor import HealthMonitor
from nodeagent.proxy.source.api_source import StoreSink
from nodeagent.proxy.source.informer import Informer, Resource
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pace import Pace
from nodeagent.proxy.source.pace import Timing as SourceTiming
from nodeagent.proxy.translate.node_state import TranslationOptions
from tests.harness.called_files import CalledFiles, file_of

pytestmark = pytest.mark.kernel

T = TypeVar("T")
DRIVER = "proxy/dataplane/driver/driver.py"
HANDED_THROUGH = [
    "proxy/source/informer.py",
    "proxy/source/api_source.py",
    "proxy/source/object_store.py",
    "proxy/engine/change_queue.py",
    "proxy/engine/sync.py",
    DRIVER,
    "proxy/dataplane/driver/ruleset.py",
    "wire/netlink/socket.py",
]
MOST_ENTERED = 66
"""Files of which any function runs, values and wire formats among them."""


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...


def line(kind: str, version: int, external: str) -> bytes:
    spec = {"clusterIP": "10.96.0.1", "externalIPs": [external], "ports": [{"port": 80}]}
    meta = {"name": "web", "namespace": "default", "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": meta, "spec": spec}}).encode() + b"\n"


class Client:
    """An API server with one Service; `lines` are what its watch says."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes:
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()

    @asynccontextmanager
    async def stream(
        self, path: str, parameters: Iterable[tuple[str, str]], rest_seconds: Callable[[int], float]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async def said() -> AsyncIterator[bytes]:
            bookmark = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
            yield json.dumps({"type": "BOOKMARK", "object": {"metadata": bookmark}}).encode() + b"\n"
            while True:
                yield await self.lines.get()

        yield said()


class Others:
    """All who hear of a pass."""

    def __init__(self) -> None:
        self.reports: list[PassReport] = []

    def passed(self, report: PassReport) -> None:
        self.reports.append(report)

    def submit(self, udp_ports: Iterable[UdpPort]) -> None: ...

    def look_again(self, family: Family) -> None: ...

    def affinity_purged(self, report: PurgeReport) -> None: ...
    def drift_found(self, report: DriftReport) -> None: ...

    def beat(self) -> None: ...


class Recorder(CalledFiles):
    """Until the message is sent; and, also after that, driver_entries: functions of the table driver that the engine called."""

    def __init__(self) -> None:
        super().__init__(points={"ChangeQueue.service_changed"}, end="NetlinkSocket.send")
        self.driver_entries: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        super().__call__(frame, event, argument)
        if event == "call" and file_of(frame) == DRIVER and (file_of(frame.f_back) or "").startswith("proxy/engine/"):
            self.driver_entries.append(frame.f_code.co_name)


def way() -> Recorder:
    async def story() -> Recorder:
        loop = asyncio.get_running_loop()
        changes, others, client = ChangeQueue(loop.time), Others(), Client()
        store = ClusterStore(changes)
        HealthMonitor(changes, [Family.IPV4], timeout_seconds=60, clock=loop.time)
        engine = Engine(
            snapshot=store,
            changes=changes,
            options=TranslationOptions(node_name="node", families=(Family.IPV4,), bind_address="192.0.2.1"),
            tables=[TableDriver(Family.IPV4, Ruleset(), ProgramOptions(PodDetection.CIDR), Ownership.PLAIN, others)],
            interface=None,
            flows=others,
            observer=others,
            heartbeat=others,
            timing=Timing(guard_period_seconds=60.0),
        )
        pace = Pace(random=lambda: 0.5, sleep=asyncio.sleep, timing=SourceTiming())
        informer = Informer(client, Resource(Service, "/api/v1/services"), StoreSink(store, Service), pace)
        store.replace(EndpointSlice, [])
        tasks = [asyncio.create_task(work) for work in (informer.run(), engine.run())]
        try:
            async with asyncio.timeout(60):
                await client.lines.put(line("ADDED", 2, "198.51.100.1"))
                await until(lambda: any(report.changed for report in others.reports))
                recorder, seen = Recorder(), len(others.reports)
                sys.setprofile(recorder)
                await client.lines.put(line("MODIFIED", 3, "198.51.100.2"))
                await until(lambda: len(others.reports) > seen)
        finally:
            sys.setprofile(None)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return recorder

    return asyncio.run(story())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the condition is over plain values
        await asyncio.sleep(0.001)


def test_a_change_is_handed_through_few_files(namespace: Namespace) -> None:
    found = namespace.run(way)
    assert list(found.handed_through) == HANDED_THROUGH
    assert not [file for file in found.entered if file.startswith("proxy/observe/")], "observation is not on the way"
    assert len(found.entered) <= MOST_ENTERED
    assert found.driver_entries == ["sync"]


def test_the_document_names_the_files_in_order() -> None:
    text = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    section = text.partition("## A change on its way")[2].partition("\n## ")[0]
    assert " → ".join(f"`{file}`" for file in HANDED_THROUGH) in " ".join(section.split())
