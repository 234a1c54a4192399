"""The storages there are. A further one is a further line in `BENCHES`, and has to pass everything in this directory."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeagent.apiserver.storage.etcd import cluster_client, storage
from nodeagent.apiserver.storage.etcd.cluster_client import Client
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.apiserver.storage.etcd.storage import EtcdStorage
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.port import Storage
from nodeagent.apiserver.storage.store import Store, Window
from tests.harness.effort import MEMBERS
from tests.harness.etcd import EtcdCluster, needs_etcd

WINDOW = Window()
PATIENCE_SECONDS = 60.0
"""Until etcd is given up."""


class Clock:
    """Time that passes on command."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """One place where a storage keeps things, empty at first."""

    storage: Callable[[int | None], Storage]
    """Each call is another server on the same place; takes the size limit in bytes."""
    restored: Callable[[str], Storage]
    """A storage made of a snapshot."""
    clock: Clock = field(default_factory=Clock)
    span: float = 10.0
    """Seconds that objects with an end have in tests."""
    passes_by_itself: bool = False
    """Objects end by a clock that no test can set."""

    def store(self, *, window: Window = WINDOW, limit_bytes: int | None = None) -> Store:
        return Store(self.storage(limit_bytes), window=window, clock=self.clock)

    def now(self) -> float:
        """The time that ends objects."""
        return time.monotonic() if self.passes_by_itself else self.clock.now

    async def wait(self, *stores: Store) -> None:
        """A tenth of a span passes; the stores show what became of it."""
        if self.passes_by_itself:
            await asyncio.sleep(self.span / 10)
        else:
            self.clock.now += self.span / 10
        for store in stores:
            await store.catch_up()


@dataclass
class Places:
    """Where storages may be made: a directory, and an etcd once one is needed."""

    directory: Callable[[], Path]
    etcd: Callable[[], EtcdCluster]
    numbers: Iterator[int] = field(default_factory=itertools.count)


def memory(_: Places) -> Bench:
    return Bench(lambda limit: Log(":memory:", limit_bytes=limit), Log)


def sqlite(places: Places) -> Bench:
    path = str(places.directory() / "store.db")
    return Bench(lambda limit: Log(path, limit_bytes=limit), Log)


def etcd(places: Places) -> Bench:
    """All on one cluster, of MEMBERS members, each below a prefix of its own."""
    clock = Clock()
    cluster = places.etcd()
    layout = Layout(f"/registry-{next(places.numbers)}", {})

    def storage(_: int | None) -> EtcdStorage:
        return EtcdStorage(Client([Endpoint(*one) for one in cluster.endpoints]), layout, clock=clock)

    return Bench(storage, Log, clock, span=2.0, passes_by_itself=True)


BENCHES = {"memory": memory, "sqlite": sqlite, "etcd": etcd}
DURABLE = ("sqlite", "etcd")
"""Those whose contents outlive the server, and that several servers can share."""
LIMITED = ("memory", "sqlite")
"""Those whose size can be limited here. etcd is limited elsewhere, and then refuses all but deletions."""


def parameters(kinds: Iterable[str]) -> list[object]:
    return [pytest.param(kind, marks=needs_etcd if kind == "etcd" else ()) for kind in kinds]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    numbers = itertools.count()
    started: list[EtcdCluster] = []

    def start() -> EtcdCluster:
        if not started:
            started.append(EtcdCluster(tmp_path_factory.mktemp("etcd"), MEMBERS))
        return started[0]

    # What is given up in time is test_unreachable's; here a busy machine only makes etcd slow.
    with pytest.MonkeyPatch.context() as patient:
        patient.setattr(storage, "_WRITE_SECONDS", PATIENCE_SECONDS)
        patient.setattr(storage, "CALL_SECONDS", PATIENCE_SECONDS / 2)
        patient.setattr(cluster_client, "READ_SECONDS", PATIENCE_SECONDS)
        yield Places(lambda: tmp_path_factory.mktemp(f"place{next(numbers)}"), start)
    for cluster in started:
        cluster.close()


@pytest.fixture(scope="module", params=parameters(BENCHES))
def new_bench(request: pytest.FixtureRequest, places: Places) -> Callable[[], Bench]:
    """Makes benches of one storage after another."""
    return lambda: BENCHES[request.param](places)


@pytest.fixture(scope="module", params=parameters(DURABLE))
def new_durable_bench(request: pytest.FixtureRequest, places: Places) -> Callable[[], Bench]:
    """The same, of those whose contents last."""
    return lambda: BENCHES[request.param](places)


@pytest.fixture(scope="module", params=LIMITED)
def new_limited_bench(request: pytest.FixtureRequest, places: Places) -> Callable[[], Bench]:
    """The same, of those that take a limit."""
    return lambda: BENCHES[request.param](places)


@pytest.fixture(scope="module", params=[kind for kind in LIMITED if kind in DURABLE])
def new_durable_limited_bench(request: pytest.FixtureRequest, places: Places) -> Callable[[], Bench]:
    """The same, of those that last and take a limit."""
    return lambda: BENCHES[request.param](places)
