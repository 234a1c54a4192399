"""A cheap API server for measurements: Services and their endpoints, and changes that are sent on request.

It answers lists and watches of one page, from bytes that it encoded before. Alone, it is a process of its own that prints its port and
then follows orders on its standard input, one a line: `churn RATE SECONDS` sends so many changes of an endpoint a second and then prints
`done`; `asked` prints when the first request came since the last such order (CLOCK_MONOTONIC).
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import cast

from aiohttp import web

from tests.bench.table import service_json, slice_json

NODE = "node-1"
NODE_ADDRESS = "192.0.2.1"
POD_RANGE = "10.0.0.0/8"
STEP = 7919
"""Changes go to one Service in so many, so that each is cold when its turn comes."""


def changes(services: int, endpoints: int) -> Iterator[bytes]:
    """Yields lines of a watch without end: an endpoint of one Service after the other goes, and comes back in the next round."""
    version, gone = 1, False
    while True:
        gone = not gone
        for turn in range(services):
            version += 1
            held = slice_json(turn * STEP % services, endpoints)
            metadata, listed = cast("dict[str, object]", held["metadata"]), cast("list[object]", held["endpoints"])
            kept = listed[: turn % endpoints] + listed[turn % endpoints + 1 :] if gone else listed
            changed = held | {"metadata": metadata | {"resourceVersion": str(version)}, "endpoints": kept}
            yield json.dumps({"type": "MODIFIED", "object": changed}).encode() + b"\n"


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


async def churn(server: WatchServer, lines: Iterator[bytes], rate: float, seconds: float) -> None:
    """Sends so many changes a second, each when its time has come."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(int(rate * seconds)):
        line = next(lines)
        await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        await server.send(line)


async def _follow_orders(services: int, endpoints: int) -> None:
    server, lines = WatchServer(services, endpoints), changes(services, endpoints)
    print(await server.start(), flush=True)
    while order := await asyncio.to_thread(sys.stdin.readline):
        match order.split():
            case ["asked"]:
                print(server.first_request, flush=True)
                server.first_request = None
            case ["churn", rate, seconds]:
                await churn(server, lines, float(rate), float(seconds))
                print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_follow_orders(*map(int, sys.argv[1:])))
