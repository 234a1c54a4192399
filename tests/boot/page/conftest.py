"""A node with ten thousand services, its agent, and a browser on it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boot.page.browser import Browser
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.warm_start import WarmLauncher
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.world import World

GENERATOR = Path(__file__).parents[2] / "bench" / "generate_manifests.py"
SHOP = cluster_ips(9001)


@pytest.fixture(scope="module")
def cluster(
    network_namespaces: None, warm_launcher: WarmLauncher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with World(fork_server=warm_launcher.actors, launcher=warm_launcher) as world:
        yield Cluster(world, tmp_path_factory.mktemp("manifests"))


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    size = ["--services", "9000", "--endpoints", "3"]
    subprocess.run([sys.executable, GENERATOR, *size, "--out", cluster.manifests.path], check=True)
    for pod in ("web-0", "far-0"):
        cluster.world[pod].serve(8080)
    cluster.expose("shop", *SHOP, pods=["web-0", "far-0"])
    return cluster.start_agent(*WITH_POD_CIDRS, seconds=60.0)


@pytest.fixture(scope="module")
def browser(cluster: Cluster, agent: AgentProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(cluster.world.namespace(NODE), tmp_path_factory.mktemp("browser") / "profile")
    yield browser
    browser.close()
