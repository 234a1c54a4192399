"""The agent as a process against an API server as a process, in worlds of network namespaces."""

import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import inside
from tests.harness.api_cluster import CONTROL, PODS, ApiCluster, Tenant, controlled_topology
from tests.harness.cluster import NODE, UNTHROTTLED
from tests.harness.effort import STORAGES
from tests.harness.etcd import EtcdCluster
from tests.harness.etcd_hosts import Host
from tests.harness.warm_start import WarmLauncher
from tests.harness.worlds.world import World

TOOLS = Path(__file__).parents[2] / ".tools"
KUBECTLS = {
    "kubectl 1.20": TOOLS / "kubectl-1.20" / "kubectl",
    "kubectl 1.32": TOOLS / "kubectl-1.32" / "kubectl",
}
"""Debian 12's and Debian 13's, which `make test` unpacks (tests/tools/fetch_kubectl.sh)."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        wanted = getattr(item, "callspec", None)
        program = KUBECTLS.get(wanted.params.get("kubectl", "")) if wanted else None
        if program and not program.exists() and os.environ.get("CI") != "true":
            item.add_marker(pytest.mark.skipif(True, reason=f"no {program}: see tests/tools/fetch_kubectl.sh"))


@pytest.fixture(params=list(KUBECTLS))
def kubectl(request: pytest.FixtureRequest) -> Path:
    """An old and a new kubectl, one after the other."""
    program = KUBECTLS[request.param]
    if not program.exists():
        pytest.fail(f"CI must run tests with {request.param}, but there is no {program}")
    return program


def running(directory: Path, warm: WarmLauncher, storage: str) -> Iterator[ApiCluster]:
    """A world with an API server, both nodes declared, an agent that is ready, and pods that answer on port 8080."""
    with ExitStack() as stack:
        world = stack.enter_context(World(controlled_topology(), fork_server=warm.actors, launcher=warm))
        cluster = ApiCluster(world, directory)
        world.write_sysctls(NODE, UNTHROTTLED)
        if storage == "etcd":
            control = world.namespace(CONTROL)
            members = inside(control, lambda: EtcdCluster(directory / "etcd", hosts=[Host(control, "127.0.0.1")]))
            stack.callback(members.close)
            cluster.keep_in("--storage", "etcd", "--etcd-servers", members.urls)
        elif storage == "memory":
            cluster.keep_in("--storage", "memory")
        cluster.start_server()
        cluster.declare_nodes()
        cluster.serve(*PODS)
        with warm.busy(f"{directory.name} {storage}"):
            cluster.start_agent()
        yield cluster


@pytest.fixture(scope="session", params=STORAGES)
def calm(
    network_namespaces: None,
    warm_launcher: WarmLauncher,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[ApiCluster]:
    """One cluster for all tests that leave both processes and both nodes as they are."""
    yield from running(tmp_path_factory.mktemp("calm"), warm_launcher, request.param)


@pytest.fixture(scope="module", params=[storage for storage in STORAGES if storage != "memory"])
def shaken(
    network_namespaces: None,
    warm_launcher: WarmLauncher,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[ApiCluster]:
    """A cluster for the tests of a module that kill and restart its processes."""
    yield from running(tmp_path_factory.mktemp("shaken"), warm_launcher, request.param)


@pytest.fixture(autouse=True, scope="module")
def busy_kernel(busy_kernel: None) -> None:
    """Everywhere; the agent of `calm` begins before."""


def of_test(cluster: ApiCluster, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    tenant = cluster.tenant(f"test-{zlib.crc32(request.node.nodeid.encode()):08x}")
    yield tenant
    tenant.remove()


@pytest.fixture
def tenant(calm: ApiCluster, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A namespace of the test's own in the calm cluster."""
    yield from of_test(calm, request)


@pytest.fixture
def shaken_tenant(shaken: ApiCluster, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A namespace of the test's own in the shaken cluster."""
    yield from of_test(shaken, request)
