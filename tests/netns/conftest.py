"""Worlds for tests with packets."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from nodeagent.lab.net.topology import POD_BRIDGE
from tests.harness.cluster import Cluster
from tests.harness.warm_start import WarmLauncher
from tests.harness.worlds.topology import standard_topology
from tests.harness.worlds.world import World


@pytest.fixture(scope="module")
def new_world(network_namespaces: None, warm_launcher: WarmLauncher) -> Callable[..., World]:
    """`World`, with actors and agents that are forked. Modules in which the start of an agent is the point replace it."""
    return partial(World, fork_server=warm_launcher.actors, launcher=warm_launcher)


@pytest.fixture
def build_world(new_world: Callable[..., World]) -> Iterator[Callable[..., World]]:
    """Builds worlds, of a given topology or the standard one, that are gone after the test."""
    with ExitStack() as stack:
        yield lambda topology=None: stack.enter_context(new_world(topology))


@pytest.fixture
def world(new_world: Callable[..., World]) -> Iterator[World]:
    """A standard world of the test's own."""
    with new_world() as world:
        yield world


@pytest.fixture(scope="module")
def shared_world(new_world: Callable[..., World]) -> Iterator[World]:
    """A standard world for the tests of a module that leave no traces in it."""
    with new_world() as world:
        yield world


@pytest.fixture(scope="module")
def pod_bridge(request: pytest.FixtureRequest) -> str:
    """The bridge that pods of `cluster` are ports of, as in most clusters. Modules that are about links of pods have `BRIDGE = NO_BRIDGE`."""
    return str(getattr(request.module, "BRIDGE", POD_BRIDGE))


@pytest.fixture(scope="module")
def cluster(
    new_world: Callable[..., World], tmp_path_factory: pytest.TempPathFactory, pod_bridge: str
) -> Iterator[Cluster]:
    """A standard world with a directory of manifests, for the tests of a module; no agent runs yet."""
    with new_world(standard_topology(pod_bridge=pod_bridge)) as world:
        yield Cluster(world, tmp_path_factory.mktemp("manifests"))


@pytest.fixture(autouse=True, scope="module")
def busy_kernel(busy_kernel: None) -> None:
    """Everywhere."""
