"""When the state is saved, and when it is restored: a store that is written to a file, and one that is read from it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    LABEL_SERVICE_NAME,
    Endpoint,
    EndpointSlice,
    Node,
    ObjectMeta,
    Service,
    ServiceCIDR,
    ServiceSpec,
)
from nodeagent.model.problem import Problem
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.source.following import Following
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.source.saved import state_keeper
from nodeagent.proxy.source.saved.state_keeper import StateKeeper
from nodeagent.proxy.source.saved.state_origin import StateOrigin
from nodeagent.proxy.source.saved.state_restorer import StateRestorer

ORIGIN = StateOrigin("c", "node-a", for_names=False)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
DEADLINE_SECONDS = 200.0
"""Each save waits for the disk, which other tests keep busy."""
WEB = ObjectKey("demo", "web")


def service(name: str, address: str = "10.0.0.1") -> Service:
    return Service(ObjectMeta(name=name, namespace="demo"), ServiceSpec(cluster_ip=address))


def slice_of(name: str, *addresses: str) -> EndpointSlice:
    meta = ObjectMeta(name=f"{name}-x", namespace="demo", labels={LABEL_SERVICE_NAME: name})
    return EndpointSlice(meta, "IPv4", tuple(Endpoint((address,)) for address in addresses), ())


class Side:
    """A store, and one who saves and restores it. A call of `list_all` is the API server's answer."""

    def __init__(self, path: Path, *, with_names: bool = False, now: datetime = NOW) -> None:
        self.changes = ChangeQueue(asyncio.get_running_loop().time)
        self.store = ClusterStore(self.changes)
        self.problems: tuple[Problem, ...] = ()
        self.namespaces = NamespaceNames(lambda: None) if with_names else None
        self.following = [Following("services")]
        shared = (path, ORIGIN, self.store, self.namespaces)
        self.keeper = StateKeeper(*shared, wall=lambda: now, report=self._report, pause_seconds=0.01)
        self.restorer = StateRestorer(
            *shared,
            longest=timedelta(days=7),
            following=lambda: self.following,
            wall=lambda: now,
            report=self._report,
        )

    def _report(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)

    def list_all(self, *services: str, node: str | None = "node-a") -> None:
        self.store.replace(Service, [service(name) for name in services])
        self.store.replace(EndpointSlice, [slice_of(name, "10.1.0.1") for name in services])
        self.store.replace(Node, [] if node is None else [Node(ObjectMeta(name=node))])
        self.store.replace(ServiceCIDR, [])
        if self.namespaces is not None:
            self.namespaces.replace({"demo"})


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def namespaced_path(task: Awaitable[None], work: Awaitable[None]) -> None:
    """Runs `task` while `work` does its steps, and cancels it then."""
    running = asyncio.ensure_future(task)
    try:
        await work
        assert not running.done() or running.exception() is None
    finally:
        running.cancel()
        await asyncio.wait({running})


async def save(path: Path, *services: str, with_names: bool = False) -> None:
    side = Side(path, with_names=with_names)
    side.list_all(*services)
    await namespaced_path(side.keeper.run(), until(path.exists))


def test_a_state_that_is_not_complete_is_not_saved(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "state"
        side = Side(path)
        side.store.replace(Service, [service("web")])
        side.store.replace(EndpointSlice, [slice_of("web", "10.1.0.1")])

        async def steps() -> None:
            await asyncio.sleep(0.05)
            assert not path.exists()
            side.store.replace(Node, [])
            side.store.replace(ServiceCIDR, [])
            await until(path.exists)

        await namespaced_path(side.keeper.run(), steps())

    asyncio.run(scene())


def test_only_what_changed_is_saved_and_the_last_change_at_the_end(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "state"
        side = Side(path)
        side.list_all("web")

        async def steps() -> None:
            await until(path.exists)
            written = path.stat().st_mtime_ns
            await asyncio.sleep(0.05)
            assert path.stat().st_mtime_ns == written
            side.store.put(service("api"))

        await namespaced_path(side.keeper.run(), steps())
        restored = Side(path)
        await namespaced_path(
            restored.restorer.run(), until(lambda: ObjectKey("demo", "api") in restored.store.services)
        )

    asyncio.run(scene())


def test_an_unchanged_state_is_renewed_before_it_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_keeper, "RENEW_SECONDS", 0.02)

    async def scene() -> None:
        path = tmp_path / "state"
        side = Side(path)
        side.list_all("web")

        async def steps() -> None:
            await until(path.exists)
            written = path.stat().st_mtime_ns
            await until(lambda: path.stat().st_mtime_ns != written)

        await namespaced_path(side.keeper.run(), steps())

    asyncio.run(scene())


def test_a_disk_that_refuses_is_a_problem_until_it_does_not(tmp_path: Path) -> None:
    async def scene() -> None:
        hindrance = tmp_path / "directory"
        hindrance.write_bytes(b"a file where a directory should be")
        side = Side(hindrance / "state")
        side.list_all("web")

        async def steps() -> None:
            await until(lambda: side.problems)
            (problem,) = side.problems
            assert problem.reason == "NotSaved"
            hindrance.unlink()
            await until(lambda: not side.problems)

        await namespaced_path(side.keeper.run(), steps())
        assert (hindrance / "state").exists()

    asyncio.run(scene())


def test_a_silent_server_is_replaced_by_the_saved_state_until_it_lists(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "state"
        await save(path, "web", "gone", with_names=True)
        side = Side(path, with_names=True)

        async def steps() -> None:
            await side.changes.wait_synced(DEADLINE_SECONDS)
            assert side.store.services.keys() == {WEB, ObjectKey("demo", "gone")}
            assert [one.endpoints for one in side.store.slices_of(WEB)] == [(Endpoint(("10.1.0.1",)),)]
            assert side.store.node is not None
            assert not side.store.node_gone
            assert side.namespaces is not None
            assert side.namespaces.names == frozenset({"demo"})
            assert side.store.awaited == ("Service", "EndpointSlice", "Node", "ServiceCIDR")
            await until(lambda: [one.reason for one in side.problems] == ["NotListedSinceStart"])

            side.changes.take()
            side.list_all("web")
            assert side.store.services.keys() == {WEB}
            assert side.changes.take().services == {ObjectKey("demo", "gone")}, "what stayed the same is no change"
            await until(lambda: not side.problems)
            assert side.restorer.saved is None

        await namespaced_path(side.restorer.run(), steps())

    asyncio.run(scene())


def test_a_state_without_the_node_does_not_deny_its_existence(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "state"
        before = Side(path)
        before.list_all("web", node=None)
        await namespaced_path(before.keeper.run(), until(path.exists))
        side = Side(path)
        await namespaced_path(side.restorer.run(), side.changes.wait_synced(DEADLINE_SECONDS))
        assert not side.store.node_gone

    asyncio.run(scene())


def test_a_kind_that_the_server_has_listed_is_not_restored(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "state"
        await save(path, "old")
        side = Side(path)
        side.store.replace(Service, [service("new")])
        await namespaced_path(side.restorer.run(), side.changes.wait_synced(DEADLINE_SECONDS))
        assert side.store.services.keys() == {ObjectKey("demo", "new")}
        assert side.store.restored == ("EndpointSlice", "Node", "ServiceCIDR")

    asyncio.run(scene())


def test_a_server_that_sends_a_long_list_is_waited_for(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "state"
        await save(path, "old")
        side = Side(path)
        loop = asyncio.get_running_loop()

        async def steps() -> None:
            end = loop.time() + 1.5
            while loop.time() < end:
                side.following[0].last_received = loop.time()
                await asyncio.sleep(0.02)
            assert not side.store.services
            side.list_all("new")
            await asyncio.sleep(0.1)
            assert side.store.services.keys() == {ObjectKey("demo", "new")}

        await namespaced_path(side.restorer.run(), steps())

    asyncio.run(scene())


def test_a_state_that_must_not_be_used_is_a_problem_and_changes_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "state"
        await save(path, "web")
        side = Side(path, now=NOW + timedelta(days=8))

        async def steps() -> None:
            await until(lambda: side.problems)
            (problem,) = side.problems
            assert problem.reason == "NotUsed"
            assert "older than source.snapshotMaxAge allows" in problem.detail
            assert not side.store.services
            side.list_all("web")
            await until(lambda: not side.problems)

        await namespaced_path(side.restorer.run(), steps())

    asyncio.run(scene())
