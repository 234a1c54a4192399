"""A node with an agent for the tests of a module."""

import pytest

from tests.harness.cluster import NODE, Cluster
from tests.harness.serving_node import ServingNode
from tests.netns.wirings import both_kinds_of_pods

pod_bridge = both_kinds_of_pods


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> ServingNode:
    """`web-0`, `web-1`, `web-2` and `far-0` answer on port 8080, TCP and UDP; no agent runs yet.

    The node's kernel does not ration ICMP errors, so every refusal is seen.
    """
    node = ServingNode(cluster)
    node.world.write_sysctls(NODE, {"net/ipv4/icmp_ratelimit": "0", "net/ipv6/icmp/ratelimit": "0"})
    node.serve("web-0", "web-1", "web-2", "far-0")
    return node
