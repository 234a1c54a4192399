"""Worlds for tests with packets."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from nodeagent.lab.net.world import World
from tests.harness.cluster import Cluster


@pytest.fixture
def build_world(network_namespaces: None) -> Iterator[Callable[..., World]]:
    """Builds worlds, of a given topology or the standard one, that are gone after the test."""
    with ExitStack() as stack:
        yield lambda topology=None: stack.enter_context(World(topology))


@pytest.fixture
def world(network_namespaces: None) -> Iterator[World]:
    """A standard world of the test's own."""
    with World() as world:
        yield world


@pytest.fixture(scope="module")
def shared_world(network_namespaces: None) -> Iterator[World]:
    """A standard world for the tests of a module that leave no traces in it."""
    with World() as world:
        yield world


@pytest.fixture(scope="module")
def cluster(network_namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A standard world with a directory of manifests, for the tests of a module; no agent runs yet."""
    with World() as world:
        yield Cluster(world, tmp_path_factory.mktemp("manifests"))
