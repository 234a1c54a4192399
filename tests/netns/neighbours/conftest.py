"""Worlds for scenes with neighbours. Each setting has one of its own: hooks of iptables-legacy stay until it ends."""

from collections.abc import Callable, Iterator

import pytest

from tests.harness.cluster import Cluster
from tests.harness.worlds.topology import standard_topology
from tests.harness.worlds.world import World

from .scene import Scene


@pytest.fixture(scope="module")
def prepare() -> Callable[[Cluster], None]:
    """What a module wants in its worlds besides, before anybody starts; modules replace it."""
    return lambda cluster: None


@pytest.fixture(scope="module")
def beside(
    request: pytest.FixtureRequest,
    new_world: Callable[..., World],
    tmp_path_factory: pytest.TempPathFactory,
    prepare: Callable[[Cluster], None],
    pod_bridge: str,
) -> Iterator[Scene]:
    """The scene of a setting (indirect parameter)."""
    with new_world(standard_topology(pod_bridge=pod_bridge)) as world:
        scene = Scene(Cluster(world, tmp_path_factory.mktemp("manifests")))
        scene.serve()
        prepare(scene.cluster)
        scene.begin(request.param)
        yield scene
