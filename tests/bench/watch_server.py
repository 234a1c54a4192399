"""A cheap API server for measurements: Services and their endpoints, and changes that are sent on request.

It answers lists and watches of one page, from bytes that it encoded before. Alone, it is a process of its own that prints its port and
then follows orders on its standard input, one a line: `churn RATE SECONDS` sends so many changes of an endpoint a second and then prints
how long all but one in a hundred took until they were in force, in seconds, and how many a second it managed to send; `alone COUNT` sends
so many changes, each in a quiet time, and prints how long half of them took, all but one in a hundred, and all; `asked` prints when the
first request came since the last such order (CLOCK_MONOTONIC).
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import cast

from aiohttp import web

from nodeagent.model.addresses import Family, Protocol
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable, present_specs
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.image.image import frontend_key, packed_class
from nodeagent.proxy.dataplane.program import schema
from tests.bench.table import cluster_ip, service_json, slice_json

NODE = "node-1"
NODE_ADDRESS = "192.0.2.1"
POD_RANGE = "10.0.0.0/8"
PATIENCE_SECONDS = 10.0
LOOK_SECONDS = 0.00002
"""With 0.1 ms, a sleep and a look took 0.3 ms together, and changes of 1.0 and of 1.3 ms were measured alike."""
REST_SECONDS = 0.05
"""After which the agent makes a pass at once."""
STEP = 7919
"""Changes go to one Service in so many, so that each is cold when its turn comes."""


def changes(services: int, endpoints: int) -> Iterator[bytes]:
    """Yields lines of a watch without end: an endpoint of one Service after the other goes, and comes back in the next round."""
    return (line for _, _, line in numbered_changes(services, endpoints))


def numbered_changes(services: int, endpoints: int) -> Iterator[tuple[int, bool, bytes]]:
    """Yields the same lines, each with the number of its Service and whether an endpoint goes."""
    version, gone = 1, False
    while True:
        gone = not gone
        for turn in range(services):
            version += 1
            held = slice_json(turn * STEP % services, endpoints)
            metadata, listed = cast("dict[str, object]", held["metadata"]), cast("list[object]", held["endpoints"])
            kept = listed[: turn % endpoints] + listed[turn % endpoints + 1 :] if gone else listed
            changed = held | {"metadata": metadata | {"resourceVersion": str(version)}, "endpoints": kept}
            line = json.dumps({"type": "MODIFIED", "object": changed}).encode() + b"\n"
            yield turn * STEP % services, gone, line


class WatchServer:
    """Services with endpoints, and one node. `send` puts lines into the watch of endpoints."""

    def __init__(self, services: int, endpoints: int) -> None:
        address = {"type": "InternalIP", "address": NODE_ADDRESS}
        node = {"metadata": {"name": NODE}, "spec": {"podCIDR": "10.0.0.0/16"}, "status": {"addresses": [address]}}
        lists: dict[str, list[dict[str, object]]] = {
            "services": [service_json(index) for index in range(services)],
            "endpointslices": [slice_json(index, endpoints) for index in range(services)],
            "nodes": [node],
            "servicecidrs": [],
            "namespaces": [],
        }
        self._bodies = {
            name: json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
            for name, items in lists.items()
        }
        self._watching: list[web.StreamResponse] = []
        self.first_request: float | None = None

    async def send(self, lines: bytes) -> None:
        for response in self._watching:
            await response.write(lines)

    async def start(self) -> int:
        """Returns the port on which it serves, on loopback."""
        application = web.Application()
        application.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.first_request = self.first_request or time.monotonic()
        if request.path == "/apis/discovery.k8s.io/v1":
            return web.json_response(
                {"kind": "APIResourceList", "groupVersion": "discovery.k8s.io/v1", "resources": []}
            )
        resource = request.path.rpartition("/")[2]
        if resource not in self._bodies:
            return web.Response(status=404)
        if "sendInitialEvents" in request.query:
            refused = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}
            return web.json_response(refused, status=422)
        if "watch" not in request.query:
            return web.Response(body=self._bodies[resource], content_type="application/json")
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        if resource == "endpointslices":
            self._watching = [response]
        await asyncio.Event().wait()
        return response


def kubeconfig(port: int) -> str:
    """Returns a kubeconfig for the server at this port."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "nobody"}}],
            "current-context": "bench",
        }
    )


class Kernel:
    """Asks the kernel whether the last slot of a Service's endpoints is there: it goes with one of them, and comes back with it."""

    def __init__(self, endpoints: int) -> None:
        self._slot = packed_class(endpoints - 1)
        ruleset = Ruleset()
        self._table = KernelTable(ruleset, Family.IPV4, present_specs(ruleset, Family.IPV4))

    async def seconds_until(self, address: str, *, full: bool) -> float:
        """Returns how long it takes until the Service at this ClusterIP has all its endpoints in force, or one less."""
        began = time.monotonic()
        key = frontend_key(address, Protocol.TCP, 80) + self._slot
        while self._table.has(schema.BACKENDS, key) is not full and time.monotonic() < began + PATIENCE_SECONDS:  # noqa: ASYNC110 - the kernel sets no event
            await asyncio.sleep(0.001)
        return time.monotonic() - began

    def wait_for(self, address: str, *, full: bool) -> float:
        """The same, but it blocks, and looks more often."""
        began = time.monotonic()
        key = frontend_key(address, Protocol.TCP, 80) + self._slot
        while self._table.has(schema.BACKENDS, key) is not full and time.monotonic() < began + PATIENCE_SECONDS:
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - began


async def churn(
    server: WatchServer, lines: Iterator[tuple[int, bool, bytes]], kernel: Kernel, rate: float, seconds: float
) -> str:
    """Sends so many changes a second, each when its time has come, and measures one after the other of them."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    waits: list[float] = []
    waiting: asyncio.Task[float] | None = None
    for number in range(int(rate * seconds)):
        service, gone, line = next(lines)
        await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        await server.send(line)
        if waiting is None or waiting.done():
            waits += [] if waiting is None else [waiting.result()]
            waiting = asyncio.create_task(kernel.seconds_until(cluster_ip(service), full=not gone))
    lasted = loop.time() - began
    if waiting is not None:
        waits.append(await waiting)
    return f"{sorted(waits)[len(waits) * 99 // 100]} {rate * seconds / lasted}"


async def change_alone(
    server: WatchServer, lines: Iterator[tuple[int, bool, bytes]], kernel: Kernel, count: int
) -> str:
    """Sends so many changes, each when the one before has been in force for a while."""
    waits: list[float] = []
    for _ in range(count):
        await asyncio.sleep(REST_SECONDS)
        service, gone, line = next(lines)
        await server.send(line)
        waits.append(kernel.wait_for(cluster_ip(service), full=not gone))
    waits.sort()
    return f"{waits[count // 2]} {waits[count * 99 // 100]} {waits[-1]}"


async def _follow_orders(services: int, endpoints: int) -> None:
    server, lines = WatchServer(services, endpoints), numbered_changes(services, endpoints)
    print(await server.start(), flush=True)
    while order := await asyncio.to_thread(sys.stdin.readline):
        match order.split():
            case ["asked"]:
                print(server.first_request, flush=True)
                server.first_request = None
            case ["churn", rate, seconds]:
                print(await churn(server, lines, Kernel(endpoints), float(rate), float(seconds)), flush=True)
            case ["alone", count]:
                print(await change_alone(server, lines, Kernel(endpoints), int(count)), flush=True)


if __name__ == "__main__":
    asyncio.run(_follow_orders(*map(int, sys.argv[1:])))
