"""The table of times, in a network namespace of its own: `make bench`, or `unshare -n python tests/bench/table.py`.

Each size is measured in a process of its own, so that memory and allocator state of one do not touch the next. The
whole engine runs: store, change queue, translation, both tables, service interface. Only decoding is outside the
"programmed" row, which starts with decoded objects. Times on a shared machine mean little alone: compare the columns, or with
`--against REV` another revision, which is measured in turns with this one.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from msgspec import json as msgspec_json
from msgspec.structs import replace

from nodeagent.daemon.arenas import use_one_arena
from nodeagent.daemon.collector import collect_rarely
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import UdpPort
from nodeagent.model.objects import EndpointSlice, Node, Service, ServiceCIDR
from nodeagent.model.reports import DriftReport, PassReport, PurgeReport
from nodeagent.model.spacing import BURST, SPACING_SECONDS
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.interface import ServiceInterface
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.engine.sync import Engine, Timing
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.watch import PAGE_SIZE
from nodeagent.proxy.translate.node_state import TranslationOptions

Decoded = TypeVar("Decoded", Service, EndpointSlice)
CHANGES = 400
CHURN_RATES = (400, 2000)
"""Changes a second."""
CHURN_SECONDS = 5
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = TranslationOptions(
    node_name="node-1", families=(Family.IPV4,), bind_address="192.0.2.1", cluster_cidrs=("10.0.0.0/8",)
)


@dataclass
class Passes:
    """Collects pass reports and lets the benchmark wait for the next; takes UDP ports and cleans nothing."""

    reports: list[PassReport] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def passed(self, report: PassReport) -> None:
        self.reports.append(report)
        self.arrived.set()

    def submit(self, udp_ports: Iterable[UdpPort]) -> None:
        """No flows are tracked here."""

    def look_again(self, family: Family) -> None:
        """Nor are they now."""

    def beat(self) -> None:
        """Nobody watches."""

    def affinity_purged(self, report: PurgeReport) -> None:
        """No client has learned anything here."""

    def drift_found(self, report: DriftReport) -> None:
        """Nobody else writes here."""

    async def next(self) -> PassReport:
        await self.arrived.wait()
        self.arrived.clear()
        return self.reports[-1]


def cluster_ip(index: int) -> str:
    return f"172.{16 + (index >> 16)}.{index >> 8 & 255}.{index & 255}"


def service_json(index: int) -> dict[str, object]:
    return {
        "metadata": {"name": f"svc-{index}", "namespace": f"ns-{index % 50}", "resourceVersion": "1"},
        "spec": {
            "clusterIP": cluster_ip(index),
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        },
    }


def slice_json(index: int, endpoints: int) -> dict[str, object]:
    first = index * endpoints
    return {
        "metadata": {
            "name": f"svc-{index}-x",
            "namespace": f"ns-{index % 50}",
            "labels": {"kubernetes.io/service-name": f"svc-{index}"},
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {"f:endpoints": {}, "f:ports": {}}}],
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "nodeName": f"node-{number % 100}",
            }
            for number in range(first, first + endpoints)
        ],
    }


def engine_of(store: ClusterStore, changes: ChangeQueue, passes: Passes, netlink: Ruleset) -> Engine:
    return Engine(
        snapshot=store,
        changes=changes,
        options=SETTINGS,
        tables=[TableDriver(Family.IPV4, netlink, ProgramOptions(PodDetection.CIDR), Ownership.PLAIN, passes)],
        interface=ServiceInterface("nodeagent0"),
        flows=passes,
        observer=passes,
        heartbeat=passes,
        timing=Timing(),
    )


def decoded(kind: type[Decoded], documents: Iterable[dict[str, object]]) -> tuple[list[Decoded], float]:
    """The objects, read page by page as from an API server, and how long that took: seconds."""
    objects: list[Decoded] = []
    seconds = 0.0
    documents = iter(documents)
    while page := list(islice(documents, PAGE_SIZE)):
        body = msgspec_json.encode(page)
        started = time.perf_counter()
        objects += msgspec_json.decode(body, type=list[kind])  # type: ignore[valid-type]  # a generic alias at run time
        seconds += time.perf_counter() - started
    return objects, seconds


async def churn(
    store: ClusterStore, passes: Passes, services: int, endpoints: int, changes_a_second: int
) -> dict[str, float]:
    """Endpoints of one Service after the other come and go for CHURN_SECONDS. Returns the processor time of each change (ms), how
    many changes a pass took, and how long all but one in a hundred waited until they were in force (ms)."""
    versions: list[EndpointSlice] = []
    for turn in range(changes_a_second * CHURN_SECONDS // 2):
        (held,), _ = decoded(EndpointSlice, [slice_json(turn * 7919 % services, endpoints)])
        versions += [replace(held, endpoints=tuple(held.endpoints or ())[1:]), held]
    loop = asyncio.get_running_loop()
    passes.reports.clear()
    began, began_on_processor = loop.time(), time.process_time()
    put_at: list[float] = []
    for number, version in enumerate(versions):
        await asyncio.sleep(max(0.0, began + number / changes_a_second - loop.time()))
        put_at.append(loop.time())
        store.put(version)
    await asyncio.sleep(10 * SPACING_SECONDS)
    spent = time.process_time() - began_on_processor
    starts = [(report.started, report.finished) for report in passes.reports]
    waited = sorted(next(finished for started, finished in starts if started >= at) - at for at in put_at)
    return {
        f"{changes_a_second}/s ms each": spent * 1000 / len(versions),
        f"{changes_a_second}/s a pass": len(versions) / len(starts),
        f"{changes_a_second}/s p99 ms": waited[len(waited) * 99 // 100] * 1000,
    }


async def measure(services: int, endpoints: int) -> dict[str, float]:
    """One size, from nothing: seconds (s), milliseconds (ms), counts, MB."""
    result: dict[str, float] = {}
    decoded_services, seconds = decoded(Service, map(service_json, range(services)))
    decoded_slices, more_seconds = decoded(EndpointSlice, (slice_json(index, endpoints) for index in range(services)))
    result["decode s"] = seconds + more_seconds

    loop = asyncio.get_running_loop()
    changes = ChangeQueue(loop.time)
    store = ClusterStore(changes)
    passes = Passes()
    with_netlink = Ruleset()
    engine = engine_of(store, changes, passes, with_netlink)
    started = time.perf_counter()
    store.replace(Service, decoded_services)
    store.replace(EndpointSlice, decoded_slices)
    store.replace(Node, [])
    store.replace(ServiceCIDR, [])
    del decoded_services, decoded_slices
    running = asyncio.ensure_future(engine.run())
    report = await passes.next()
    result["programmed s"] = time.perf_counter() - started
    result["elements"] = report.touched
    result["table s"] = report.families[Family.IPV4].seconds

    await asyncio.sleep(BURST * SPACING_SECONDS)  # every pass is granted again
    latencies: list[float] = []
    touched = 0
    for turn in range(CHANGES):
        index = turn * 7919 % services
        (held,), _ = decoded(EndpointSlice, [slice_json(index, endpoints)])
        present = tuple(held.endpoints or ())
        left = present[: turn % endpoints] + present[turn % endpoints + 1 :]
        smaller = replace(held, endpoints=left if turn else present[: endpoints // 2])
        for version in (smaller, held):
            await asyncio.sleep(SPACING_SECONDS)  # a change alone is what is measured
            before = loop.time()
            store.put(version)
            report = await passes.next()
            latencies.append(report.finished - before)
            touched = max(touched, report.touched) if turn else 0
    # The first one leaves a Service with half of its endpoints. No Service had as many before, and no chain is spare for them.
    result["new class ms"] = latencies.pop(0) * 1000
    ordered = sorted(latencies)
    result["change p50 ms"] = statistics.median(ordered) * 1000
    result["change p99 ms"] = ordered[len(ordered) * 99 // 100] * 1000
    result["change max elements"] = touched
    for rate in CHURN_RATES:
        result |= await churn(store, passes, services, endpoints, rate)
    running.cancel()
    await asyncio.wait([running])
    with_netlink.close()
    result["peak RSS MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    again = Ruleset()
    generation = again.generation()
    changes = ChangeQueue(loop.time)
    store = ClusterStore(changes)
    passes = Passes()
    engine = engine_of(store, changes, passes, again)
    decoded_services, _ = decoded(Service, map(service_json, range(services)))
    decoded_slices, _ = decoded(EndpointSlice, (slice_json(index, endpoints) for index in range(services)))
    started = time.perf_counter()
    store.replace(Service, decoded_services)
    store.replace(EndpointSlice, decoded_slices)
    running = asyncio.ensure_future(engine.run())
    report = await passes.next()
    result["restart s"] = time.perf_counter() - started
    result["restart elements"] = report.touched
    result["restart writes"] = again.generation() - generation
    running.cancel()
    await asyncio.wait([running])
    again.close()
    return result


def measure_apart(services: int, endpoints: int, root: Path = ROOT) -> dict[str, float]:
    """The same by the code of the checkout at `root`, in a process and a network namespace of its own."""
    argv = ["unshare", "-n", sys.executable, str(root / "tests/bench/table.py"), "--one", str(services), str(endpoints)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """A checkout of another revision while the block lasts."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "nodeagent"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(place), revision], check=True)
        try:
            yield place
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], check=True)


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {row: statistics.median(run[row] for run in runs) for row in runs[0]}


def print_table(heads: list[str], columns: list[dict[str, float]]) -> None:
    print(f"{'':22}" + "".join(f"{head:>14}" for head in heads))
    for row in columns[0]:
        cells = [f"{column[row]:.3f}".rstrip("0").rstrip(".") if row in column else "-" for column in columns]
        print(f"{row:22}" + "".join(f"{cell:>14}" for cell in cells))


def compare(services: int, endpoints: int, revision: str, turns: int) -> None:
    """Prints medians of this checkout and of another revision, measured in turns, and their ratios."""
    ours, theirs = [], []
    with checkout(revision) as other:
        for _ in range(turns):
            ours.append(measure_apart(services, endpoints))
            theirs.append(measure_apart(services, endpoints, other))
    now, before = medians(ours), medians(theirs)
    ratios = {row: now[row] / before[row] for row in now if before.get(row)}
    print_table([f"{services} x {endpoints}", revision[:12], "ratio"], [now, before, ratios])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000x10,10000x10", help="services x endpoints, comma separated")
    parser.add_argument("--against", metavar="REV", help="compare with another revision of this repository")
    parser.add_argument("--turns", type=int, default=3, help="runs of each revision (3)")
    parser.add_argument("--one", nargs=2, type=int, metavar=("SERVICES", "ENDPOINTS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        use_one_arena()
        collect_rarely()
        print(json.dumps(asyncio.run(measure(*arguments.one))))
        return
    sizes = [tuple(map(int, size.split("x"))) for size in arguments.sizes.split(",")]
    if arguments.against:
        known = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{arguments.against}^{{commit}}"]
        if subprocess.run(known, check=False, stdout=subprocess.DEVNULL).returncode:
            parser.error(f"--against {arguments.against}: no such revision of {ROOT}")
        for services, endpoints in sizes:
            compare(services, endpoints, arguments.against, arguments.turns)
        return
    columns = [measure_apart(services, endpoints) for services, endpoints in sizes]
    print_table([f"{services} x {endpoints}" for services, endpoints in sizes], columns)


if __name__ == "__main__":
    main()
