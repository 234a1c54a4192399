"""The storages there are. A further one is a further line in `BENCHES`, and has to pass everything in this directory."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeagent.controlplane.storage.log import Log
from nodeagent.controlplane.storage.port import Storage
from nodeagent.controlplane.storage.store import Store, Window

WINDOW = Window()


class Clock:
    """Time that passes when told to."""

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

    def store(self, *, window: Window = WINDOW, limit_bytes: int | None = None) -> Store:
        return Store(self.storage(limit_bytes), window=window, clock=self.clock)


def memory(_: Path) -> Bench:
    return Bench(lambda limit: Log(":memory:", limit_bytes=limit), Log)


def sqlite(place: Path) -> Bench:
    return Bench(lambda limit: Log(str(place / "store.db"), limit_bytes=limit), Log)


BENCHES = {"memory": memory, "sqlite": sqlite}
DURABLE = ("sqlite",)
"""Those whose contents outlive the server, and that several servers can share."""


def maker(kind: str, factory: pytest.TempPathFactory) -> Callable[[], Bench]:
    numbers = itertools.count()
    return lambda: BENCHES[kind](factory.mktemp(f"{kind}{next(numbers)}"))


@pytest.fixture(scope="module", params=BENCHES)
def new_bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Bench]:
    """Makes benches of one storage after another."""
    return maker(request.param, tmp_path_factory)


@pytest.fixture(scope="module", params=DURABLE)
def new_durable_bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Bench]:
    """The same, of those whose contents last."""
    return maker(request.param, tmp_path_factory)
