"""The agent's source beside releases of Kubernetes: the same Services, hints and ranges, by what each release serves.

A server of the tests behaves as `tests/harness/releases.py` says, and with KUBERNETES=DIR a real kube-apiserver that emulates these
releases does: it has their APIs and features, and the code of its own.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, _AsyncGeneratorContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from aiohttp import web

from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.source.api_source import ApiServerSource
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.object_store import ClusterStore
from tests.harness.etcd import needs_etcd
from tests.harness.etcd import running as etcd
from tests.harness.etcd_hosts import Hosts, hosts
from tests.harness.kube_apiserver import TOKEN, KubeApiserver, needs_kube_apiserver
from tests.harness.releases import EMULATED, RELEASES, Release

SERVICES, NODES = "/api/v1/services", "/api/v1/nodes"
GROUP: Final = "/apis/discovery.k8s.io/v1"
SLICES: Final = f"{GROUP}/endpointslices"
CIDRS: Final = "/apis/networking.k8s.io/v1/servicecidrs"
RANGES: Final = ("10.96.0.0/16", "fd00:10:96::/112")
SHOP: Final = ObjectKey("default", "shop")
STREAM: Final = (
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
)
LABEL: Final = "kubernetes.io/service-name"
REFUSED: Final = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
each_release = pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
each_emulated = pytest.mark.parametrize("release", EMULATED, ids=lambda release: release.name)


def service(distribution: str, name: str = "shop") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"ports": [{"port": 80}], "trafficDistribution": distribution}}


def slice_of(*addresses: str) -> dict[str, Any]:
    hints = {"forZones": [{"name": "here"}], "forNodes": [{"name": "n1"}]}
    return {
        "metadata": {"name": "shop-1", "namespace": "default", "labels": {LABEL: "shop"}},
        "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": [address], "hints": hints} for address in addresses],
    }


class NotingClient(ApiClient):
    """Notes what is asked for: the paths of lists, and of watches that begin with the present objects."""

    def __init__(self, access: ClusterAccess) -> None:
        super().__init__(access)
        self.listed: list[str] = []
        self.streamed: list[str] = []

    async def get(self, path: str, parameters: Iterable[tuple[str, str]] = ()) -> bytes:
        self.listed.append(path)
        return await super().get(path, parameters)

    def stream(
        self, path: str, parameters: Iterable[tuple[str, str]], rest_seconds: Callable[[int], float] = lambda size: 0.0
    ) -> _AsyncGeneratorContextManager[AsyncIterator[bytes], None]:
        asked = dict(parameters)
        if "sendInitialEvents" in asked:
            self.streamed.append(path)
        return super().stream(path, asked.items(), rest_seconds)


class Deaf:
    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


async def follow(access: ClusterAccess, release: Release, change: Callable[[], object]) -> None:
    """What the source knows of a server of this release, before and after a change of the slice."""
    store = ClusterStore(Deaf())
    async with NotingClient(access) as client:
        source = ApiServerSource(client, store, node_name="n1")
        task = asyncio.create_task(source.run())
        try:
            await until(lambda: store.is_synced and store.node is not None and "ServiceCIDR" not in store.awaited)
            assert SHOP in store.services
            assert hints(store) == [("10.1.0.1", ["here"], ["n1"] if release.has_node_hints else [])]
            found = {text for one in store.service_cidrs for text in one.spec.cidrs or ()}
            assert found == (set(RANGES) if release.has_service_cidrs else set())
            # Each is first asked for a stream; where that is refused, for a list.
            assert {SERVICES, SLICES, NODES, CIDRS} <= set(client.streamed)
            assert (SERVICES in client.listed) is (not release.streams_lists)
            assert store.problems == ()
            await asyncio.to_thread(change)
            await until(lambda: [address for address, *_ in hints(store)] == ["10.1.0.1", "10.1.0.2"])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def hints(store: ClusterStore) -> list[tuple[str, list[str], list[str]]]:
    """Of each endpoint its address, and the zones and nodes that it is for."""
    return [
        (
            address,
            [zone.name for zone in (endpoint.hints and endpoint.hints.for_zones) or ()],
            [node.name for node in (endpoint.hints and endpoint.hints.for_nodes) or ()],
        )
        for held in store.slices_of(SHOP)
        for endpoint in held.endpoints or ()
        for address in endpoint.addresses or ()
    ]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # what tests wait for has no event of its own
            await asyncio.sleep(0.01)


class Server(Protocol):
    url: str

    def reply(self, path: str, body: object, status: int = 200) -> None: ...

    def answer(self, path: str, answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None: ...

    def stream(self, path: str, pieces: Iterable[bytes], end: str = "close", every_seconds: float = 0.0) -> None: ...


def event(kind: str, document: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def offer(server: Server, release: Release, path: str, *objects: dict[str, Any]) -> None:
    """The present objects, as this release lists or streams them."""
    if release.streams_lists:
        end = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
        pieces = [*(event("ADDED", one) for one in objects), event("BOOKMARK", {"metadata": end})]
        server.stream(path, pieces)
    else:
        server.reply(path, {"kind": "Status", "code": 422, "reason": "Invalid", "message": REFUSED}, 422)
        server.reply(path, {"metadata": {"resourceVersion": "7"}, "items": list(objects)})


def served(release: Release, document: dict[str, Any]) -> dict[str, Any]:
    """A slice as the release keeps it."""
    if not release.has_node_hints:
        for endpoint in document["endpoints"]:
            endpoint["hints"] = {"forZones": endpoint["hints"]["forZones"]}
    return document


async def watched(changes: asyncio.Event, document: dict[str, Any], request: web.Request) -> web.StreamResponse:
    """A watch that receives a new state of an object once it changes."""
    response = web.StreamResponse()
    await response.prepare(request)
    await changes.wait()
    document["metadata"]["resourceVersion"] = "8"
    await response.write(event("MODIFIED", document))
    return response


@each_release
def test_the_agent_works_with_an_api_server_of_each_release(
    fake_api_server: Callable[[], AbstractAsyncContextManager[Server]], release: Release
) -> None:
    async def main() -> None:
        async with fake_api_server() as server:
            server.reply(GROUP, {"kind": "APIResourceList", "groupVersion": "discovery.k8s.io/v1", "resources": []})
            offer(server, release, SERVICES, service("PreferClose"))
            offer(server, release, SLICES, served(release, slice_of("10.1.0.1")))
            offer(server, release, NODES, {"metadata": {"name": "n1"}})
            if release.has_service_cidrs:
                offer(server, release, CIDRS, {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": RANGES}})
            else:
                server.reply(CIDRS, b"404 page not found", 404)
            changes, loop = asyncio.Event(), asyncio.get_running_loop()
            server.answer(SLICES, partial(watched, changes, served(release, slice_of("10.1.0.1", "10.1.0.2"))))
            access = ClusterAccess(server.url, TlsTrust(), FixedCredential())
            await follow(access, release, lambda: loop.call_soon_threadsafe(changes.set))

    asyncio.run(main())


@pytest.mark.kernel
@needs_etcd
@needs_kube_apiserver
@each_emulated
def test_a_kube_apiserver_that_emulates_the_release(tmp_path: Path, release: Release) -> None:
    with hosts(2) as network:
        inside(network.clients, partial(emulated, tmp_path, network, release))


def emulated(tmp_path: Path, network: Hosts, release: Release) -> None:
    where, there = network.members
    with etcd(tmp_path / "etcd", 1, hosts=[where]) as cluster:
        flag = f"--emulated-version={release.name}"
        server = KubeApiserver(tmp_path / "server", there, cluster.urls, ",".join(RANGES), flag)
        try:
            play(server, f"https://{there.address}:6443", release)
        finally:
            server.end()


def play(server: KubeApiserver, url: str, release: Release) -> None:
    call = server.api.call
    assert server.api.get("/version")["emulationMinor"] == release.name.partition(".")[2]
    services = "/api/v1/namespaces/default/services"
    slices = f"{GROUP}/namespaces/default/endpointslices"
    assert call("POST", NODES, {"metadata": {"name": "n1"}})[0] == 201
    assert call("POST", services, service("PreferClose"))[0] == 201
    assert call("POST", services, service("PreferSameNode", "node"))[0] == (201 if release.has_node_hints else 422)
    assert call("POST", slices, slice_of("10.1.0.1"))[0] == 201
    status, answer = call("GET", f"{SERVICES}?{STREAM}")
    assert status == (200 if release.streams_lists else 422)
    if answer.get("type") == "ERROR":
        # The etcd is too old for it, as Debian 12's.
        release = replace(release, streams_lists=False)
    asyncio.run(
        follow(
            ClusterAccess(url, TlsTrust(insecure=True), FixedCredential.token(TOKEN)),
            release,
            lambda: put(server, f"{slices}/shop-1", slice_of("10.1.0.1", "10.1.0.2")),
        )
    )


def put(server: KubeApiserver, path: str, document: dict[str, Any]) -> None:
    status, answer = server.api.call("PUT", path, document)
    assert status == 200, answer
