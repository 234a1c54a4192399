"""A node for planted faults."""

import pytest

from nodeagent.model.addresses import Protocol
from tests.harness.cluster import TARGET_PORT, Cluster
from tests.netns.trace.planting import program


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Cluster:
    """Services on `node-a`, programmed in a plain table."""
    world = cluster.world
    for pod in ("web-0", "far-0"):
        for protocol in (Protocol.TCP, Protocol.UDP):
            world[pod].serve(TARGET_PORT, protocol)
    program(cluster)
    return cluster
