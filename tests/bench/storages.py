"""Writes a second and the time until a watcher hears of one, for each storage and for one server and three, in one run.

    python tests/bench/storages.py      (`make bench-storages`; ETCD=/path/to/etcd takes another release than Debian 12's)

Servers are processes without TLS; a client per connection creates ConfigMaps of 1 kB one after the other. Then one object is
changed again and again at one server, and watched at another.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.harness.api_processes import Process, running
from tests.harness.etcd import running as etcd

CONFIGMAPS: Final = "/api/v1/namespaces/default/configmaps"
SECONDS: Final = 4.0
CHANGES: Final = 300
PADDING: Final = "x" * 800
MERGE: Final = {"Content-Type": "application/merge-patch+json"}
SETTINGS: Final = [
    ("memory", 1, 0),
    ("SQLite", 1, 0),
    ("etcd, 1 member", 1, 1),
    ("etcd, 3 members", 1, 3),
    ("etcd, 3 members", 3, 3),
]
"""Storage, API servers, members of etcd."""


async def writes(session: aiohttp.ClientSession, urls: Sequence[str], clients: int, name: str) -> float:
    """Objects created a second by so many clients, spread over the servers."""
    ends = time.monotonic() + SECONDS
    done = 0

    async def create(client: int) -> None:
        nonlocal done
        number = 0
        while time.monotonic() < ends:
            body = {"metadata": {"name": f"{name}-{client}-{number}"}, "data": {"x": PADDING}}
            async with session.post(f"{urls[client % len(urls)]}{CONFIGMAPS}", json=body) as answer:
                assert answer.status == 201, await answer.text()
            done += 1
            number += 1

    await asyncio.gather(*(create(client) for client in range(clients)))
    return done / SECONDS


async def latencies(session: aiohttp.ClientSession, urls: Sequence[str]) -> list[float]:
    """Milliseconds from sending a change to one server to hearing of it from the last one, the shortest first."""
    async with session.post(f"{urls[0]}{CONFIGMAPS}", json={"metadata": {"name": "watched"}}) as answer:
        since = (await answer.json())["metadata"]["resourceVersion"]
    query = f"?watch=1&resourceVersion={since}&fieldSelector=metadata.name%3Dwatched"
    found = []
    async with session.get(f"{urls[-1]}{CONFIGMAPS}{query}") as watch:
        for number in range(CHANGES):
            began = time.perf_counter()
            change = {"data": {"n": str(number)}}
            async with session.patch(f"{urls[0]}{CONFIGMAPS}/watched", json=change, headers=MERGE) as answer:
                assert answer.status == 200, await answer.text()
                event: dict[str, Any] = json.loads(await watch.content.readline())
                assert event["object"]["data"]["n"] == str(number)
                found.append(1000 * (time.perf_counter() - began))
    return sorted(found)


async def measure(servers: Sequence[Process]) -> tuple[float, float, float, float]:
    """Writes a second with one client and with 32; median and 99th percentile of a watcher's latency in ms."""
    async with asyncio.timeout(60):
        while not all(server.url for server in servers):  # noqa: ASYNC110  # a file has no event
            await asyncio.sleep(0.05)
    urls = [server.url or "" for server in servers]
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        alone = await writes(session, urls, 1, "alone")
        many = await writes(session, urls, 32, "many")
        times = await latencies(session, urls)
    return alone, many, statistics.median(times), times[len(times) * 99 // 100]


def main() -> None:
    """Prints the table."""
    print("| storage | API servers | writes/s, 1 client | writes/s, 32 clients | watch, median ms | watch, p99 ms |")
    print("|---|---|---|---|---|---|")
    for storage, count, members in SETTINGS:
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            place = Path(name)
            options = ["--data-dir", str(place / "data")] if storage == "SQLite" else ["--storage", "memory"]
            if members:
                cluster = stack.enter_context(etcd(place / "etcd", members, on_disk=True))
                options = ["--storage", "etcd", "--etcd-servers", cluster.urls]
            servers = stack.enter_context(running(place, count, *options))
            alone, many, median, late = asyncio.run(measure(servers))
        print(f"| {storage} | {count} | {alone:,.0f} | {many:,.0f} | {median:.1f} | {late:.1f} |", flush=True)


if __name__ == "__main__":
    main()
