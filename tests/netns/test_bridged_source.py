"""Whom an endpoint sees as its client, where both are ports of one bridge of the node.

br_netfilter brings packets between two ports to the rules of IP. In `postrouting` they have no input interface, which packets
of the node itself have not either.
"""

import msgspec
import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.objects import NodeSpec
from tests.harness.bridged_pods import BRIDGE, GATEWAYS, NEEDS_BR_NETFILTER, put_on_one_bridge
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.objects import make_node

pytestmark = [pytest.mark.kernel, NEEDS_BR_NETFILTER]

SERVICE = cluster_ips(1)
SERVER, CLIENT = "web-0", "caller"


@pytest.fixture(scope="module")
def bridged(cluster: Cluster) -> Cluster:
    """A Service with an endpoint on the bridge on which its client is, too."""
    put_on_one_bridge(cluster.world, NODE, (SERVER, CLIENT))
    cluster.world.run(NODE, ["sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"])
    cluster.world.run(NODE, ["sysctl", "-qw", "net.bridge.bridge-nf-call-ip6tables=1"])
    cluster.world[SERVER].serve(8080)
    cluster.expose("here", *SERVICE, pods=[SERVER])
    node = make_node(NODE, cluster.world[NODE].addresses)
    ranges = ("10.244.1.0/24", "fd00:244:1::/64")
    cluster.manifests.put(msgspec.structs.replace(node, spec=NodeSpec(ranges[0], ranges)))
    return cluster


@pytest.mark.parametrize(
    ("flags", "client_kept"),
    [
        pytest.param(WITH_POD_CIDRS, True, id="ClusterCIDR"),
        pytest.param(("--detect-local-mode", "NodeCIDR"), True, id="NodeCIDR"),
        pytest.param(("--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", BRIDGE), True, id="bridge"),
        pytest.param(
            ("--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cni"), True, id="prefix"
        ),
        pytest.param(
            ("--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "br9"), False, id="another bridge"
        ),
        pytest.param((), True, id="no detection: so does the node"),
        pytest.param((*WITH_POD_CIDRS, "--masquerade-all"), False, id="masquerade-all"),
    ],
)
def test_a_pod_keeps_its_source(bridged: Cluster, flags: tuple[str, ...], *, client_kept: bool) -> None:
    world = bridged.world
    agent = bridged.start_agent(*flags)
    try:
        for family in Family:
            clients = (CLIENT, SERVER, NODE)
            seen = {client: world[client].ask(of_family(family, SERVICE), 80).peers for client in clients}
            nodes = of_family(family, GATEWAYS)
            kept = world[CLIENT].address(family) if client_kept else nodes
            own = nodes if flags else world[NODE].address(family)
            assert seen == {CLIENT: {kept}, SERVER: {nodes}, NODE: {own}}
    finally:
        agent.stop()
