"""etcd goes back to a snapshot under servers that run and clients that watch.

Servers refuse it, unless its revisions were raised: then all clients list again, and nobody misses a change.
"""

import asyncio
import json
import random
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Service
from nodeagent.proxy.source.api_source import StoreSink
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.credentials import FixedCredential
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess
from nodeagent.proxy.source.client.server_choice import Server
from nodeagent.proxy.source.client.tls import TlsTrust
from nodeagent.proxy.source.informer import Informer, Resource
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.pace import Pace
from tests.harness.api_processes import Process, keep_running, running
from tests.harness.etcd import EtcdCluster, can_bump_revisions, needs_etcd
from tests.harness.etcd import running as etcd
from tests.harness.free_ports import free_ports
from tests.harness.warm_start import WarmLauncher

pytestmark = needs_etcd
SERVICES = "/api/v1/namespaces/default/services"
DEADLINE_SECONDS = 90.0
BUMP, COMPACTED = "--bump-revision", "--mark-compacted"
ANOTHER = ("--initial-cluster-token", "another")
GONE = 410


class Nobody:
    def service_changed(self, key: ObjectKey) -> None: ...

    def node_changed(self) -> None: ...

    def service_cidrs_changed(self) -> None: ...

    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


class World:
    """Two servers on one etcd, and an informer of services that knows both."""

    def __init__(self, cluster: EtcdCluster, servers: Sequence[Process]) -> None:
        self.cluster = cluster
        self.servers = servers
        self.store = ClusterStore(Nobody())

    def ask(self, method: str, path: str, body: Any = None, *, at: int = 0) -> tuple[int, Any]:
        """The status, and the first line of the answer; 0 without an answer."""
        url = self.servers[at].url
        if url is None:
            return 0, None
        data = json.dumps(body).encode() if body is not None else None
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            f"{self.servers[at].url}{path}", data, {"Content-Type": content}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.readline())
        except urllib.error.HTTPError as refused:
            return refused.code, None
        except (OSError, ValueError):
            return 0, None

    async def does(self, method: str, name: str, body: Any = None) -> None:
        """As soon as a server that is well takes it."""
        path = SERVICES if method == "POST" else f"{SERVICES}/{name}"
        await self.until(lambda: self.ask(method, path, body)[0] in (200, 201), f"{method} {name} is not taken")

    async def create(self, name: str) -> None:
        await self.does("POST", name, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})

    def names(self, at: int) -> set[str]:
        """What a server lists."""
        status, found = self.ask("GET", SERVICES, at=at)
        return {item["metadata"]["name"] for item in found["items"]} - {"kubernetes"} if status == 200 else set()

    def known(self) -> set[str]:
        """What the informer knows."""
        return {key.name for key in self.store.services} - {"kubernetes"}

    def revision(self) -> int:
        return int(self.ask("GET", SERVICES)[1]["metadata"]["resourceVersion"])

    async def all_show(self, *names: str) -> None:
        def do() -> bool:
            return self.known() == set(names) and all(self.names(at) == set(names) for at in range(2))

        await self.until(do, f"not all show {names}: the informer {self.known()}")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not await asyncio.to_thread(condition):  # noqa: ASYNC110  # what is waited for has no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{what}; the informer knows {self.known()}") from None

    async def follow(self) -> None:
        urls = [server.url or "" for server in self.servers]
        access = ClusterAccess(urls[0], TlsTrust(), FixedCredential(), others=tuple(map(Server, urls[1:])))
        async with ApiClient(access) as client:
            pace = Pace(random=random.random, sleep=asyncio.sleep)
            resource = Resource(Service, "/api/v1/services")
            await Informer(client, resource, StoreSink(self.store, Service), pace).run()


@pytest.fixture
def world(tmp_path: Path, warm_launcher: WarmLauncher) -> Iterator[World]:
    with etcd(tmp_path / "etcd", 1) as cluster:
        options = ["--storage", "etcd", "--etcd-servers", cluster.urls]
        with running(tmp_path, 0) as servers:
            for number, port in enumerate(free_ports(2)):
                place = tmp_path / f"data-{number}"
                kept = (*options, "--data-dir", str(place))
                servers.append(Process(tmp_path, f"server-{number}", *kept, port=port, launcher=warm_launcher))
            yield World(cluster, servers)


@pytest.mark.parametrize("flags", [pytest.param((), id="same number"), pytest.param(ANOTHER, id="another number")])
def test_servers_refuse_an_etcd_that_went_back_and_say_how_to_restore_it(
    world: World, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    def said(number: int) -> str:
        return (tmp_path / f"server-{number}.log").read_text()

    async def scenario() -> None:
        await world.until(lambda: all(server.url for server in world.servers), "the servers do not start")
        running_on = asyncio.create_task(keep_running(world.servers))
        try:
            await world.create("kept")
            world.cluster.save(tmp_path / "snapshot")
            await world.create("lost")
            for number in range(20):
                await world.does("PATCH", "kept", {"metadata": {"labels": {"n": str(number)}}})
            await world.until(lambda: world.names(0) == world.names(1) == {"kept", "lost"}, "a server does not show it")
            highest = world.revision()
            await asyncio.to_thread(world.cluster.restore, tmp_path / "snapshot", *flags)
            await world.until(lambda: all(BUMP in said(number) for number in range(2)), "not all servers refuse")
            for number in range(2):
                assert f"clients of this server know {highest}" in said(number)
                assert "Traceback" not in said(number)
            assert [world.ask("GET", SERVICES, at=at)[0] for at in range(2)] == [0, 0]
            # Control: where no client remembers, the file is removed and the snapshot is served.
            for number in range(2):
                (tmp_path / f"data-{number}" / "etcd-last-seen.json").unlink()
            await world.until(lambda: world.names(0) == world.names(1) == {"kept"}, "the snapshot is not served")
        finally:
            running_on.cancel()
            await asyncio.gather(running_on, return_exceptions=True)

    asyncio.run(scenario())


@pytest.mark.skipif(not can_bump_revisions(), reason="etcd 3.5.10 or later: ETCD=/path/to/etcd")
@pytest.mark.parametrize(
    ("flags", "stopped"),
    [
        pytest.param((), False, id="the cluster keeps its number"),
        pytest.param(ANOTHER, False, id="the cluster gets another number"),
        pytest.param((), True, id="no server runs meanwhile"),
    ],
)
def test_with_revisions_raised_everybody_sees_what_was_restored_and_what_follows(
    world: World, tmp_path: Path, flags: tuple[str, ...], stopped: bool
) -> None:
    async def scenario() -> None:
        await world.until(lambda: all(server.url for server in world.servers), "the servers do not start")
        tasks = [asyncio.create_task(world.follow()), asyncio.create_task(keep_running(world.servers))]
        try:
            for name in ("deleted", "kept"):
                await world.create(name)
            await world.all_show("deleted", "kept")
            world.cluster.save(tmp_path / "snapshot")
            at_snapshot = world.revision()
            await world.does("DELETE", "deleted")
            await world.create("lost")
            for number in range(20):
                await world.does("PATCH", "kept", {"metadata": {"labels": {"n": str(number)}}})
            await world.all_show("kept", "lost")
            highest = world.revision()
            if stopped:
                tasks.pop().cancel()
                for server in world.servers:
                    server.end()
            await asyncio.to_thread(world.cluster.restore, tmp_path / "snapshot", *flags, BUMP, "1000000000", COMPACTED)
            if stopped:
                for server in world.servers:
                    server.start()
                tasks.append(asyncio.create_task(keep_running(world.servers)))
            await world.create("late")
            for number in range(3):
                await world.does("PATCH", "late", {"metadata": {"labels": {"n": str(number)}}})
            await world.all_show("deleted", "kept", "late")
            await world.does("DELETE", "kept")
            await world.all_show("deleted", "late")
            # Both what the snapshot did not have and what it had were reported when other changes followed.
            for at in range(2):
                for revision in (at_snapshot, highest):
                    path = f"{SERVICES}?watch=1&resourceVersion={revision}&timeoutSeconds=5"
                    _, received = world.ask("GET", path, at=at)
                    assert received is not None
                    assert (received["type"], received["object"]["code"]) == ("ERROR", GONE)
            assert world.revision() > highest
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
