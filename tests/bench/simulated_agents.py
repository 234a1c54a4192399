"""Many agents in one process: each has the client and the informers of a real one, and a store that keeps nothing.

    python -m tests.bench.simulated_agents KUBECONFIG TOKENS FIRST COUNT

Each follows the API server as its own node, with its own address on loopback and its own token. It answers each line of input with a
line of JSON; the first line starts the agents. Moments are of CLOCK_MONOTONIC, which all processes share.
"""

import asyncio
import json
import logging
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice
from nodeagent.model.problem import Problem
from nodeagent.proxy.source.api_source import ApiServerSource
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, load_kubeconfig
from nodeagent.proxy.source.object_store import ClusterStore

KINDS = 4
"""Service, EndpointSlice, Node, ServiceCIDR."""
MARKED = "svc-0-x"
"""The slice whose changes are timed: the port of each version is another one."""


def node_name(index: int) -> str:
    return f"node-{index}"


def address_of(index: int) -> str:
    """Returns the node's own address on loopback: limits for one address hold as in a cluster."""
    return f"127.1.{index // 250}.{index % 250 + 1}"


class CountingStore:
    """Stands in for `ClusterStore`: knows which kinds are listed, and when it got the latest version of the marked slice."""

    node_gone = False

    def __init__(self) -> None:
        self.listed: dict[type, float] = {}
        self.marked = (0, 0.0)
        """Port, and moment."""

    def listing(self, kind: type) -> "_Listing":
        return _Listing(self, kind)

    def put(self, obj: object) -> None:
        if isinstance(obj, EndpointSlice) and obj.metadata.name == MARKED and obj.ports:
            self.marked = (obj.ports[0].port or 0, time.monotonic())

    def remove(self, kind: type, key: ObjectKey) -> None:
        """Nothing is kept."""

    def unavailable(self, kind: type) -> None:
        self.listed.setdefault(kind, time.monotonic())

    def report(self, source: str, problems: Iterable[Problem]) -> None:
        """Problems are counted by the requests that failed."""


class _Listing:
    def __init__(self, store: CountingStore, kind: type) -> None:
        self._store = store
        self._kind = kind

    def add(self, objects: Iterable[object]) -> None:
        for obj in objects:
            self._store.put(obj)

    def discard(self, key: ObjectKey) -> None:
        """Nothing is kept."""

    def commit(self) -> None:
        self._store.listed[self._kind] = time.monotonic()


class Agents:
    """The agents of this process; `requests` counts by status, of all of them."""

    def __init__(self, access: ClusterAccess, tokens: dict[str, str], indices: Iterable[int]) -> None:
        self.requests: Counter[str] = Counter()
        self._stores: list[CountingStore] = []
        self._sources: list[ApiServerSource] = []
        self._access = access
        self._tokens = tokens
        self._indices = indices

    def requested(self, method: str, host: str, code: str, seconds: float) -> None:
        self.requests[code] += 1

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for index in self._indices:
                tasks.create_task(self._run_one(index), name=node_name(index))

    async def _run_one(self, index: int) -> None:
        credentials = FixedCredential(f"Bearer {self._tokens[node_name(index)]}")
        access = ClusterAccess(self._access.server, self._access.trust, credentials)
        store = CountingStore()
        async with ApiClient(access, listener=self) as client:
            assert client._session is not None
            connector = cast("Any", client._session.connector)
            source_address = (address_of(index), 0)
            connector._local_addr_infos = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", source_address)]
            source = ApiServerSource(client, cast("ClusterStore", store), node_name=node_name(index))
            self._stores.append(store)
            self._sources.append(source)
            await source.run()

    def state(self) -> dict[str, object]:
        """The moments at which agents had listed all kinds; the latest marked version of each and its moment."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "synced": [max(s.listed.values()) for s in self._stores if len(s.listed) == KINDS],
            "marked": [s.marked for s in self._stores],
            "lists": sum(one.lists for source in self._sources for one in source.following),
            "requests": self.requests,
            "processor": usage.ru_utime + usage.ru_stime,
        }


async def main(agents: Agents) -> None:
    await asyncio.to_thread(sys.stdin.readline)
    running = asyncio.create_task(agents.run(), name="agents")
    print(json.dumps(agents.state()), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        if running.done():
            running.result()
        print(json.dumps(agents.state()), flush=True)
    running.cancel()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    kubeconfig, tokens, first, count = sys.argv[1:]
    indices = range(int(first), int(first) + int(count))
    asyncio.run(main(Agents(load_kubeconfig(Path(kubeconfig)), json.loads(Path(tokens).read_text()), indices)))
