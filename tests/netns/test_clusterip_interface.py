"""The node reaches its services again, at once, after somebody took the service interface or its addresses away."""

import pytest

from nodeagent.lab.net.process import AgentProcess
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips

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
    addresses = cluster.world.run(NODE, ["ip", "-o", "addr", "show"]).stdout
    routes = cluster.world.run(NODE, ["ip", "-6", "route", "show", "table", "local"]).stdout
    return f"nodeagent0    inet {four}/" in addresses and f"local {six} dev nodeagent0" in routes


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(["link", "del", "nodeagent0"], id="deleted"),
        pytest.param(["addr", "flush", "dev", "nodeagent0"], id="flushed"),
        pytest.param(["-6", "route", "flush", "dev", "nodeagent0", "table", "local"], id="routes flushed"),
        pytest.param(["link", "set", "nodeagent0", "down"], id="down"),
    ],
)
def test_the_interface_comes_back_although_no_service_changes(
    cluster: Cluster, agent: AgentProcess, deed: list[str]
) -> None:
    node, printed = cluster.world[NODE], len(agent.lines)
    for address in ADDRESSES:
        assert node.ask(address, 80).only.name == "web-0"

    cluster.world.run(NODE, ["ip", *deed])

    agent.wait_for_line("interface nodeagent0 was changed by another process.*: repairing", after=printed)
    agent.wait_until(lambda: held(cluster), "the ClusterIPs on the interface")
    for address in ADDRESSES:
        assert node.ask(address, 80).only.name == "web-0"
    assert not any("Traceback" in line for line in agent.lines)
