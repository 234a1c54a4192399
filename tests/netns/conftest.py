"""Worlds for tests with packets. A machine that cannot run them skips them, unless it says CI=true: then they fail."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeagent.lab.cluster import Cluster
from nodeagent.lab.namespaces import LabError, create_namespaces, namespace_name, remove_namespace
from nodeagent.lab.world import World

HERE = Path(__file__).parent


def obstacle() -> str:
    """Why this machine cannot run worlds; empty when it can."""
    if os.geteuid():
        return "not root"
    for program in ("ip", "nft", "setpriv"):
        if not shutil.which(program):
            return f"no program {program}"
    probe = namespace_name(os.getpid(), "0", "probe")
    try:
        create_namespaces([probe])
    except LabError as error:
        return str(error)
    finally:
        remove_namespace(probe)
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    reason = obstacle() if ours else ""
    for item in ours:
        item.add_marker(pytest.mark.kernel)
        if reason and os.environ.get("CI") != "true":
            item.add_marker(pytest.mark.skipif(True, reason=f"no network namespaces here: {reason}"))


@pytest.fixture(scope="session")
def network_namespaces() -> None:
    """Asked for by every world, so that a CI machine without namespaces fails with the reason."""
    reason = obstacle()
    if reason:
        pytest.fail(f"CI must run tests with packets, but: {reason}")


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
