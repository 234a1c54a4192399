"""How one embedded API server serves many nodes: `make bench-scale`, which writes the tables of docs/scale.md.

Each agent has the client and the informers of a real one (`simulated_agents`), a user and an address of its own. The server is a process with TLS.
All agents start at the same moment, which no cluster does; then nothing happens, one endpoint slice changes again and again, and the server
is killed and started again. Agents run on the same machine: their processor time is given beside the server's, because both share the cores.

    python -m tests.bench.scale --run SQLite:1000:1000x10 --write
"""

import argparse
import asyncio
import json
import os
import platform
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodeagent.apiserver.api.pki import GROUPS, write_private
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.client.kubeconfig import load_kubeconfig
from tests.bench.process_figures import megabytes, processor_seconds
from tests.bench.simulated_agents import MARKED, node_name
from tests.bench.table import service_json, slice_json
from tests.harness.etcd import running as etcd
from tests.harness.free_ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "scale.md"
MEASURED = re.compile(r"(<!-- measured -->\n).*(<!-- end -->)", re.DOTALL)
RUNS = ("SQLite:1000:1000x10", "etcd:1000:1000x10", "SQLite:200:1000x100")
AGENTS_PER_PROCESS = 250
MEMBERS = 3
CHANGES = 20
CALM_SECONDS = 20.0
SETTLE_SECONDS = 2.0
PATIENCE_SECONDS = 240.0
WRITERS = 16
Figures = dict[str, float | str]


class Server:
    """The API server as a process; at the same port each time it is started."""

    def __init__(self, place: Path, *options: str) -> None:
        self.kubeconfig = place / "kubeconfig"
        self.users = place / "data" / "pki" / "tokens.csv"
        (port,) = free_ports(1)
        flags = ("--data-dir", place / "data", "--listen", f"127.0.0.1:{port}", "--kubeconfig-out", self.kubeconfig)
        self._argv = [sys.executable, "-m", "nodeagent", "apiserver", *map(str, flags), *options]
        self._log = (place / "server.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._argv, cwd=ROOT, stderr=self._log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Workers:
    """Processes with simulated agents."""

    def __init__(self, kubeconfig: Path, tokens: Path, agents: int) -> None:
        command = [sys.executable, "-m", "tests.bench.simulated_agents", str(kubeconfig), str(tokens)]
        self._processes = [
            subprocess.Popen(
                [*command, str(first), str(min(AGENTS_PER_PROCESS, agents - first))],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for first in range(0, agents, AGENTS_PER_PROCESS)
        ]

    def states(self) -> list[dict[str, Any]]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"state\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in self._processes if process.stdout is not None]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@dataclass(frozen=True, slots=True)
class Moment:
    """What was used and sent until a moment (CLOCK_MONOTONIC)."""

    at: float
    processor: float
    agents_processor: float
    requests: Counter[str]
    lists: int


class Measurement:
    """One server and its agents. `client` is an administrator's."""

    def __init__(self, server: Server, workers: Workers, client: ApiClient, agents: int) -> None:
        self._server = server
        self._workers = workers
        self._client = client
        self._agents = agents
        self._port = 8080

    def now(self, *, new_server: bool = False) -> Moment:
        """new_server: it has just been started, and has used nothing."""
        states = self._workers.states()
        return Moment(
            time.monotonic(),
            0.0 if new_server else processor_seconds(self._server.pid),
            sum(state["processor"] for state in states),
            sum((Counter(state["requests"]) for state in states), Counter()),
            sum(state["lists"] for state in states),
        )

    def spent(self, since: Moment, what: str, seconds: float | None = None) -> Figures:
        """Returns what was used since; the seconds are those until now unless they are given."""
        now = self.now()
        requests = now.requests - since.requests
        codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(requests.items()))
        return {
            f"{what}, s": now.at - since.at if seconds is None else seconds,
            f"{what}, server's processor s": now.processor - since.processor,
            f"{what}, agents' processor s": now.agents_processor - since.agents_processor,
            f"{what}, requests by status": codes,
            f"{what}, lists": now.lists - since.lists,
            f"{what}, server's RSS MB": megabytes(self._server.pid),
        }

    async def synced(self, began: float) -> float:
        """Waits until each agent has listed everything; returns the seconds since then."""
        return max(await self._all(lambda state: state["synced"])) - began

    async def change(self) -> list[float]:
        """Changes the marked slice and waits for all; returns the seconds until each agent has the change, the shortest first."""
        self._port += 1
        body = {"ports": [{"name": "http", "port": self._port, "protocol": "TCP"}]}
        path = f"/apis/discovery.k8s.io/v1/namespaces/ns-0/endpointslices/{MARKED}"
        began = time.monotonic()
        await self._client.request_json("PATCH", path, body, content_type="application/merge-patch+json")
        return sorted(at - began for at in await self._all(self._with_change))

    def _with_change(self, state: dict[str, Any]) -> list[float]:
        return [at for port, at in state["marked"] if port == self._port]

    async def _all(self, moments: Callable[[dict[str, Any]], list[float]]) -> list[float]:
        ends = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends:
            found = [moment for state in self._workers.states() for moment in moments(state)]
            if len(found) == self._agents:
                return found
            await asyncio.sleep(0.25)
        raise TimeoutError(f"{len(found)} of {self._agents} agents after {PATIENCE_SECONDS:.0f} s: {self.now()}")


async def populate(client: ApiClient, services: int, endpoints: int, agents: int) -> Figures:
    """Creates all objects; returns the sizes that the server sends."""
    orders: list[tuple[str, dict[str, Any]]] = []
    for index in range(min(50, services)):
        orders.append(("/api/v1/namespaces", {"metadata": {"name": f"ns-{index}"}}))
    await _create(client, orders)
    orders = [("/api/v1/nodes", {"metadata": {"name": node_name(index)}}) for index in range(agents)]
    for index in range(services):
        service: Any = service_json(index)
        service["metadata"].pop("resourceVersion")
        service["spec"].pop("clusterIP")
        orders.append((f"/api/v1/namespaces/ns-{index % 50}/services", service))
        held: Any = slice_json(index, endpoints)
        held["metadata"].pop("managedFields")
        orders.append((f"/apis/discovery.k8s.io/v1/namespaces/ns-{index % 50}/endpointslices", held))
    await _create(client, orders)
    slices = "/apis/discovery.k8s.io/v1"
    return {
        "bytes of an EndpointSlice": len(await client.get(f"{slices}/namespaces/ns-0/endpointslices/{MARKED}")),
        "bytes of all EndpointSlices": len(await client.get(f"{slices}/endpointslices")),
        "bytes of all Services": len(await client.get("/api/v1/services")),
    }


async def _create(client: ApiClient, orders: list[tuple[str, dict[str, Any]]]) -> None:
    left = iter(orders)

    async def write() -> None:
        for path, body in left:
            await client.request_json("POST", path, body)

    async with asyncio.TaskGroup() as tasks:
        for number in range(WRITERS):
            tasks.create_task(write(), name=f"writer {number}")


async def until_ready(client: ApiClient) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await client.get("/readyz")
            except KubeError:
                await asyncio.sleep(0.1)
            else:
                return


async def exists(place: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not place.exists():  # noqa: ASYNC110, ASYNC240  # a file has no event
            await asyncio.sleep(0.05)


async def measure(place: Path, agents: int, services: int, endpoints: int, options: list[str]) -> Figures:
    """One size: seconds (s), milliseconds (ms), MB, counts."""
    server = Server(place, *options)
    try:
        await exists(server.kubeconfig)
        async with ApiClient(load_kubeconfig(server.kubeconfig)) as client:
            await until_ready(client)
            sizes = await populate(client, services, endpoints, agents)
            tokens = {node_name(index): secrets.token_urlsafe(32) for index in range(agents)}
            (place / "tokens").write_text(json.dumps(tokens))
            users = "".join(f'{token},{name},{name},"{GROUPS["agent"]}"\n' for name, token in tokens.items())
            write_private(server.users, server.users.read_text() + users)
            found = sizes | {"server's RSS MB without agents": megabytes(server.pid)}
            workers = Workers(server.kubeconfig, place / "tokens", agents)
            try:
                return found | await _phases(Measurement(server, workers, client, agents), server, client)
            finally:
                workers.end()
    finally:
        server.kill()


async def _phases(measured: Measurement, server: Server, client: ApiClient) -> Figures:
    began = measured.now()
    seconds = await measured.synced(began.at)
    found = measured.spent(began, "all synced", seconds) | {"peak RSS until then MB": megabytes(server.pid, "VmHWM")}
    await asyncio.sleep(SETTLE_SECONDS)
    calm = measured.now()
    await asyncio.sleep(CALM_SECONDS)
    found |= measured.spent(calm, "nothing changes")
    first, waits = [], []
    changes = measured.now()
    for _ in range(CHANGES):
        times = await measured.change()
        first.append(times[0])
        waits += times[-1:]
    spent = measured.spent(changes, "changes")
    found["a change, the first agent, ms, median"] = 1000 * statistics.median(first)
    found["a change, the last agent, ms, p50"] = 1000 * statistics.median(waits)
    found["a change, the last agent, ms, worst"] = 1000 * max(waits)
    found["a change, server's processor ms"] = 1000 * float(spent["changes, server's processor s"]) / CHANGES
    before = measured.now()
    server.kill()
    server.start()
    started = measured.now(new_server=True)
    await until_ready(client)
    found["restart, until the server is ready, s"] = time.monotonic() - before.at
    times = await measured.change()
    found |= measured.spent(
        Moment(before.at, 0.0, started.agents_processor, before.requests, before.lists), "restart, all follow"
    )
    found["restart, a change, the last agent, s"] = times[-1]
    found["restart, peak RSS MB"] = megabytes(server.pid, "VmHWM")
    return found


@contextmanager
def storage(name: str, place: Path) -> Iterator[list[str]]:
    """The server's options for SQLite or etcd."""
    with ExitStack() as stack:
        if name == "SQLite":
            yield []
        else:
            cluster = stack.enter_context(etcd(place / "etcd", MEMBERS, on_disk=True))
            yield ["--storage", "etcd", "--etcd-servers", cluster.urls]


def run(which: str) -> Figures:
    """which: ``STORAGE:AGENTS:SERVICESxENDPOINTS``."""
    name, agents, size = which.split(":")
    services, endpoints = map(int, size.split("x"))
    with tempfile.TemporaryDirectory() as directory, storage(name, Path(directory)) as options:
        return asyncio.run(measure(Path(directory), int(agents), services, endpoints, options))


def rendered(columns: dict[str, Figures]) -> str:
    """The tables as Markdown."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    machine = f"{os.cpu_count()} x {model[1] if model else platform.machine()}, Linux {platform.release()}"
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())}: {machine}, Python {platform.python_version()}.",
        "",
        "|  | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for row in next(iter(columns.values())):
        cells = (_shown(column[row]) for column in columns.values())
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _shown(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="append", help="STORAGE:AGENTS:SERVICESxENDPOINTS, repeatable")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/scale.md")
    options = parser.parse_args()
    columns: dict[str, Figures] = {}
    for which in options.run or RUNS:
        before: Figures = {"load of the machine before": float(Path("/proc/loadavg").read_text().split()[0])}
        columns[which] = before | run(which)
        print(rendered({which: columns[which]}), flush=True)
        if options.write:
            tables = rf"\g<1>{rendered(columns)}\g<2>"
            DOCUMENT.write_text(MEASURED.sub(tables, DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
