"""More ClusterIPs than the service interface carries as addresses: the rest are local routes, and nobody can tell."""

import pytest

from nodeagent.lab.net.actor_messages import Failure
from nodeagent.model.addresses import Family, Protocol, family_of
from tests.harness.cluster import NODE, UNTHROTTLED, WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.links import Links
from tests.harness.objects import make_service, make_slices, manifest_list
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.topology import SERVICE_CIDRS

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
SERVICES = 600
ADDRESSES = {Family.IPV4: 256, Family.IPV6: 0}
"""ClusterIPs that become addresses."""
LATER = SERVICES + 1


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    """Services with two ClusterIPs each, all of the same pod, in one file."""
    cluster.world.write_sysctls(NODE, UNTHROTTLED)
    cluster.world["web-0"].serve(8080)
    cluster.world[NODE].serve(9999, addresses=("0.0.0.0", "::"), name="daemon")
    places = [(cluster.world["web-0"].addresses, NODE)]
    services = [make_service(f"service-{number}", *cluster_ips(number)) for number in range(1, SERVICES + 1)]
    slices = [part for service in services for part in make_slices(service, places, target_port=8080)]
    (cluster.manifests.path / "services.json").write_text(manifest_list([*slices, *services]))
    return cluster.start_agent(*WITH_POD_CIDRS, "--service-cidr", ",".join(SERVICE_CIDRS))


def addresses(cluster: Cluster, family: Family) -> set[str]:
    """What the service interface carries as addresses."""
    carried = Links(cluster.world, NODE).addresses("nodeagent0")
    return {address for address in carried if family_of(address) is family}


@FAMILIES
@pytest.mark.parametrize("client", [NODE, "caller", "outside"])
def test_every_cluster_ip_is_reached(cluster: Cluster, agent: AgentProcess, client: str, family: Family) -> None:
    carried = addresses(cluster, family)
    assert len(carried) == ADDRESSES[family]
    member = cluster.world[client]
    numbers = range(1, SERVICES + 1, 3)
    asked = [of_family(family, cluster_ips(number)) for number in (*numbers, SERVICES)]
    assert not carried.issuperset(asked)

    for address in asked:
        assert member.ask(address, 80).names == {"web-0": 1}, address


@FAMILIES
@pytest.mark.parametrize(
    "number", [pytest.param(1, id="an address"), pytest.param(SERVICES, id="a local route"), pytest.param(77, id="any")]
)
def test_the_node_sees_no_difference(cluster: Cluster, agent: AgentProcess, number: int, family: Family) -> None:
    node, address = cluster.world[NODE], of_family(family, cluster_ips(number))
    gateway = of_family(family, cluster.world.topology.nodes[0].pod_gateways)

    assert (address in addresses(cluster, family)) is (number <= ADDRESSES[family])
    assert not node.ping(address).failures
    assert node.ask(address, 9999).only.failure is Failure.REFUSED
    assert node.ask(address, 80, count=3).peers == {gateway}


def test_ipv6_cluster_ips_share_a_route_that_comes_back(cluster: Cluster, agent: AgentProcess) -> None:
    node, links, address = cluster.world[NODE], Links(cluster.world, NODE), cluster_ips(SERVICES)[1]
    (cidr,) = (cidr for cidr in SERVICE_CIDRS if family_of(cidr) is Family.IPV6)
    assert links.ranges("nodeagent0") == {cidr}
    assert address not in links.local_routes("nodeagent0")
    printed = len(agent.lines)

    links.remove_range("nodeagent0", cidr)

    agent.wait_for_line("interface nodeagent0 was changed by another process.*: repairing", after=printed)
    agent.wait_until(lambda: links.ranges("nodeagent0") == {cidr}, "the route")
    assert node.ask(address, 80).only.name == "web-0"


@pytest.mark.parametrize("client", [NODE, "caller", "outside"])
@FAMILIES
def test_every_cluster_ip_answers_ping(cluster: Cluster, agent: AgentProcess, client: str, family: Family) -> None:
    for number in (1, 255, 256, SERVICES):
        assert not cluster.world[client].ping(of_family(family, cluster_ips(number))).failures, number


@FAMILIES
@pytest.mark.parametrize("client", ["caller", "outside"])
@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.UDP], ids=lambda protocol: protocol.name)
def test_a_port_that_a_cluster_ip_does_not_serve_is_refused(
    cluster: Cluster, agent: AgentProcess, client: str, protocol: Protocol, family: Family
) -> None:
    for number in (1, SERVICES):
        answer = cluster.world[client].ask(of_family(family, cluster_ips(number)), 9999, protocol).only
        assert answer.failure is Failure.REFUSED, number


@FAMILIES
def test_one_more_comes_and_goes(cluster: Cluster, agent: AgentProcess, family: Family) -> None:
    address, node = of_family(family, cluster_ips(LATER)), cluster.world[NODE]
    assert node.ask(address, 80, timeout=0.2).only.failure is Failure.TIMEOUT

    service = cluster.expose("later", *cluster_ips(LATER), pods=["web-0"])
    agent.wait_until(lambda: node.ask(address, 80, timeout=0.2).names == {"web-0": 1}, "the service")
    agent.wait_until(lambda: not node.ping(address, timeout=0.2).failures, "its address")
    assert address not in addresses(cluster, family)

    cluster.withdraw(service)
    agent.wait_until(lambda: node.ask(address, 80, timeout=0.2).only.failure is Failure.TIMEOUT, "the service gone")
    assert node.ping(address, timeout=0.2).failures.total() == 1
