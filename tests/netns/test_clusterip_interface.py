"""The node reaches its services again, at once, after somebody took the service interface or its addresses away."""

from collections.abc import Callable

import pytest

from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips
from tests.harness.links import Links
from tests.harness.worlds.process import AgentProcess

ADDRESSES = cluster_ips(1)


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    """An agent with a service in both families."""
    cluster.world["web-0"].serve(8080)
    cluster.expose("web", *ADDRESSES, pods=["web-0"])
    return cluster.start_agent(*WITH_POD_CIDRS)


def held(cluster: Cluster) -> bool:
    """Whether both ClusterIPs are local by the interface: one as an address, one as a route."""
    four, six = ADDRESSES
    links = Links(cluster.world, NODE)
    if "nodeagent0" not in links.names:
        return False
    return four in links.addresses("nodeagent0") and six in links.local_routes("nodeagent0")


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(Links.remove, id="deleted"),
        pytest.param(Links.flush_addresses, id="flushed"),
        pytest.param(Links.flush_local_routes, id="routes flushed"),
        pytest.param(Links.set_down, id="down"),
    ],
)
def test_the_interface_comes_back_although_no_service_changes(
    cluster: Cluster, agent: AgentProcess, deed: Callable[[Links, str], None]
) -> None:
    node, printed = cluster.world[NODE], len(agent.lines)
    for address in ADDRESSES:
        assert node.ask(address, 80).only.name == "web-0"

    deed(Links(cluster.world, NODE), "nodeagent0")

    agent.wait_for_line("interface nodeagent0 was changed by another process.*: repairing", after=printed)
    agent.wait_until(lambda: held(cluster), "the ClusterIPs on the interface")
    for address in ADDRESSES:
        assert node.ask(address, 80).only.name == "web-0"
    assert not any("Traceback" in line for line in agent.lines)
