"""A directory of manifests feeds the store: real files, the real watcher, the real store."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from nodeagent.model.names import ObjectKey
from nodeagent.proxy.source.manifests import manifest_source
from nodeagent.proxy.source.manifests.manifest_error import ManifestError
from nodeagent.proxy.source.manifests.manifest_source import ManifestSource
from nodeagent.proxy.source.namespaces import NamespaceNames
from nodeagent.proxy.source.object_store import ClusterStore

DEADLINE = 60.0
NEVER = 3600.0
"""As poll interval: every change that is seen came from inotify."""


class SilentListener:
    def __init__(self) -> None:
        self.services: list[ObjectKey] = []

    def service_changed(self, key: ObjectKey) -> None:
        self.services.append(key)

    def node_changed(self) -> None: ...
    def service_cidrs_changed(self) -> None: ...
    def synced(self) -> None: ...

    def all_listed(self) -> None: ...


def service(name: str, address: str = "10.0.0.1") -> str:
    return f"{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{clusterIP: {address}}}}}\n"


BROKEN = "{apiVersion: v1, kind: Service, metadata: {name: [x]}}\n"


class World:
    """A running source and what arrived in its store."""

    def __init__(self, root: Path, poll_seconds: float) -> None:
        self.root = root
        self.listener = SilentListener()
        self.store = ClusterStore(self.listener)
        self.namespaces = NamespaceNames(lambda: None)
        self.source = ManifestSource(
            root, self.store, node_name="node-a", poll_seconds=poll_seconds, namespaces=self.namespaces
        )

    def names(self) -> list[str]:
        return sorted(key.name for key in self.store.services)

    def reasons(self) -> list[str]:
        return [problem.reason for problem in self.store.problems]

    def write(self, name: str, *contents: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("---\n".join(contents))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the condition, at most DEADLINE seconds."""
        give_up = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < give_up, f"services {self.names()}, problems {self.store.problems}"
            await asyncio.sleep(0.01)

    async def until_watching(self) -> None:
        """Until inotify is known to be on: a file appears in the directory until its service does in the store."""
        attempt = 0
        give_up = time.monotonic() + DEADLINE
        while "probe" not in self.names():
            assert time.monotonic() < give_up
            attempt += 1
            self.write("probe.yaml", f"# {attempt}\n", service("probe"))
            await asyncio.sleep(0.05)
        (self.root / "probe.yaml").unlink()
        await self.until(lambda: "probe" not in self.names())


def follow(root: Path, story: Callable[[World], Awaitable[None]], *, poll_seconds: float = 0.05) -> None:
    """Run the source during the story; it must end by being cancelled."""

    async def tell() -> None:
        world = World(root, poll_seconds)
        task = asyncio.create_task(world.source.run())
        try:
            await world.until(lambda: world.store.is_synced)
            if poll_seconds == NEVER:
                await world.until_watching()
            await story(world)
            assert not task.done()
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(tell())


def test_namespaces_are_those_of_all_files_together(tmp_path: Path) -> None:
    """A file with a fault keeps what its version before had."""
    declared = "{apiVersion: v1, kind: Namespace, metadata: {name: empty}}\n"
    (tmp_path / "a.yaml").write_text(service("web"))
    (tmp_path / "b.yaml").write_text(f"{declared}---\n{service('db')}")

    async def story(world: World) -> None:
        assert world.namespaces.names == frozenset({"default", "empty"})
        world.write("b.yaml", declared.replace("empty", "other"), BROKEN)
        await world.until(lambda: "InvalidManifest" in world.reasons())
        assert world.namespaces.names == frozenset({"default", "empty"})
        world.write("b.yaml", declared.replace("empty", "other"))
        await world.until(lambda: world.namespaces.names == frozenset({"default", "other"}))

    follow(tmp_path, story)


def test_the_first_reading_fills_the_store(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "---\n".join(
            [
                service("web"),
                "{apiVersion: v1, kind: Endpoints, metadata: {name: web}, subsets: [{addresses: [{ip: 10.1.0.1}]}]}\n",
                "{apiVersion: v1, kind: Node, metadata: {name: node-a}}\n",
                "{apiVersion: v1, kind: Node, metadata: {name: node-b}}\n",
                "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: k}, spec: {cidrs: [10.0.0.0/8]}}\n",
                BROKEN,
            ]
        )
    )

    async def story(world: World) -> None:
        assert world.names() == ["web"]
        assert len(world.store.slices_of(ObjectKey("default", "web"))) == 1
        assert world.store.node is not None
        assert world.store.node.metadata.name == "node-a"
        assert len(world.store.service_cidrs) == 1
        assert [problem.subject for problem in world.store.problems] == ["file a.yaml:11"]

    follow(tmp_path, story)


def test_an_empty_directory_is_an_empty_cluster(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        assert world.names() == []

    follow(tmp_path, story)


@pytest.mark.parametrize("poll_seconds", [NEVER, 0.05], ids=["inotify", "polling"])
def test_changes_on_disk_arrive(tmp_path: Path, poll_seconds: float) -> None:
    async def story(world: World) -> None:
        world.write("a.yaml", service("web"))
        await world.until(lambda: world.names() == ["web"])
        world.write(".a.yaml.new", service("web"), service("api"))
        (tmp_path / ".a.yaml.new").rename(tmp_path / "a.yaml")
        await world.until(lambda: world.names() == ["api", "web"])
        world.write("a.yaml", service("web"), BROKEN)
        await world.until(lambda: world.reasons() == ["InvalidManifest"])
        assert world.names() == ["api", "web"]
        world.write("a.yaml", service("web"))
        await world.until(lambda: world.names() == ["web"])
        assert world.reasons() == []
        (tmp_path / "a.yaml").unlink()
        await world.until(lambda: world.names() == [])

    follow(tmp_path, story, poll_seconds=poll_seconds)


def test_where_no_thread_can_be_started_to_watch_in_changes_are_polled_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unwatchable(*_: object, **__: object) -> AsyncIterator[None]:
        for error in (RuntimeError("can't start new thread"),):
            raise ExceptionGroup("of watchfiles", [error])
        yield

    monkeypatch.setattr(manifest_source, "awatch", unwatchable)

    async def story(world: World) -> None:
        world.write("a.yaml", service("a"))
        await world.until(lambda: world.names() == ["a"])

    follow(tmp_path, story)


def test_a_config_map_swap_arrives_by_inotify(tmp_path: Path) -> None:
    def publish(version: str, name: str) -> None:
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(service(name))
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    publish("..v1", "web")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")

    async def story(world: World) -> None:
        assert world.names() == ["web"]
        publish("..v2", "api")
        await world.until(lambda: world.names() == ["api"])
        shutil.rmtree(tmp_path / "..v1")
        publish("..v3", "dns")
        await world.until(lambda: world.names() == ["dns"])

    follow(tmp_path, story, poll_seconds=NEVER)


def test_a_link_whose_target_is_edited_elsewhere_arrives(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "manifests", tmp_path / "svc"
    root.mkdir()
    elsewhere.write_text(service("web"))
    (root / "a.yaml").symlink_to(elsewhere)

    async def story(world: World) -> None:
        assert world.names() == ["web"]
        elsewhere.write_text(service("new"))
        await world.until(lambda: world.names() == ["new"])

    follow(root, story)


def test_new_subdirectories_are_watched_too(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.write("sub/a.yaml", service("web"))
        await world.until(lambda: world.names() == ["web"])
        world.write("sub/b.yaml", service("api"))
        await world.until(lambda: world.names() == ["api", "web"])
        shutil.rmtree(tmp_path / "sub")
        await world.until(lambda: world.names() == [])

    follow(tmp_path, story)


def test_a_vanished_directory_keeps_the_state_and_is_followed_again_when_it_is_back(tmp_path: Path) -> None:
    root = tmp_path / "manifests"
    root.mkdir()
    (root / "a.yaml").write_text(service("web"))

    async def story(world: World) -> None:
        shutil.rmtree(root)
        await world.until(lambda: "UnreadableDirectory" in world.reasons() or world.names() == [])
        root.mkdir()
        world.write("a.yaml", service("new"))
        await world.until(lambda: world.names() == ["new"] and world.reasons() == [])
        world.write("a.yaml", service("newer"))
        await world.until(lambda: world.names() == ["newer"])

    follow(root, story)


def test_a_directory_moved_away_keeps_the_state(tmp_path: Path) -> None:
    root = tmp_path / "manifests"
    root.mkdir()
    (root / "a.yaml").write_text(service("web"))

    async def story(world: World) -> None:
        root.rename(tmp_path / "away")
        await world.until(lambda: world.reasons() == ["UnreadableDirectory"])
        assert world.names() == ["web"]
        (tmp_path / "away").rename(root)
        await world.until(lambda: world.reasons() == [])
        assert world.names() == ["web"]

    follow(root, story)


def test_a_replaced_link_to_the_directory_is_followed(tmp_path: Path) -> None:
    for release in ("one", "two"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "a.yaml").write_text(service(release))
    current = tmp_path / "current"
    current.symlink_to("one")

    async def story(world: World) -> None:
        assert world.names() == ["one"]
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").rename(current)
        await world.until(lambda: world.names() == ["two"])

    follow(current, story)


def test_one_changed_service_is_one_change(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("---\n".join(service(f"s{n}") for n in range(50)))

    async def story(world: World) -> None:
        world.listener.services.clear()
        world.write("a.yaml", *(service(f"s{n}", "10.0.0.9" if n == 7 else "10.0.0.1") for n in range(50)))
        await world.until(lambda: world.listener.services != [])
        assert world.listener.services == [ObjectKey("default", "s7")]

    follow(tmp_path, story)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda path: None, "No such file or directory", id="missing"),
        pytest.param(lambda path: path.touch(), "Not a directory", id="a file"),
    ],
)
def test_without_a_directory_there_is_no_start(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "manifests"
    make(path)
    source = ManifestSource(path, ClusterStore(SilentListener()), node_name="node-a")
    with pytest.raises(ManifestError) as raised:
        asyncio.run(source.run())
    assert str(raised.value) == f"manifest directory {path}: {message}"


def test_reading_much_does_not_hold_the_loop(tmp_path: Path) -> None:
    """While 2,500 services load and change, a task that wants to run every millisecond is never held for long: by what the
    loop's thread does itself, for others may have the processor."""
    for number in range(10):
        manifest = "---\n".join(service(f"s{number}-{n}", f"10.0.{number}.{n % 250}") for n in range(250))
        (tmp_path / f"{number}.yaml").write_text(manifest)

    async def story(world: World) -> None:
        worst = 0.0
        world.write("0.yaml", service("new"))
        while "new" not in world.names():
            before = time.thread_time()
            await asyncio.sleep(0.001)
            worst = max(worst, time.thread_time() - before)
        assert worst < 0.25, f"held for {worst:.3f} s"

    follow(tmp_path, story)
