"""Whom an endpoint sees as its client: the client itself, or the node where only that makes the answer come back."""

from collections.abc import Sequence

import pytest

from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.objects import service_port
from tests.harness.worlds.process import AgentProcess
from tests.harness.worlds.topology import POD_CIDRS

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)

PORTS = tuple(service_port(80, protocol, name=protocol.name.lower()) for protocol in Protocol)
HERE, PAIR = cluster_ips(1), cluster_ips(3)
KEPT, NODES = "kept", "the node's"

WITHOUT_DETECTION: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    """Services with one endpoint on this node, and with two."""
    for pod in ("web-0", "web-1"):
        for protocol in Protocol:
            cluster.world[pod].serve(8080, protocol)
    cluster.expose("here", *HERE, pods=["web-0"], ports=PORTS)
    cluster.expose("pair", *PAIR, pods=["web-0", "web-1"], ports=PORTS)
    return cluster


class Running:
    """The one agent of this module, restarted only when the flags change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._flags: Sequence[str] | None = None
        self._agent: AgentProcess | None = None

    def with_flags(self, flags: Sequence[str]) -> None:
        if flags == self._flags:
            return
        if self._agent:
            self._agent.stop()
        self._agent = self._cluster.start_agent(*flags)
        self._flags = flags


@pytest.fixture(scope="module")
def agent(served: Cluster) -> Running:
    return Running(served)


def towards_pods(cluster: Cluster, family: Family) -> str:
    """The node's address that a masqueraded connection to its pods comes from."""
    return of_family(family, cluster.world.topology.nodes[0].pod_gateways)


@pytest.mark.parametrize(
    ("cidr", "family", "outside"),
    [
        pytest.param(POD_CIDRS[0], Family.IPV4, NODES, id="IPv4 CIDR, IPv4"),
        pytest.param(POD_CIDRS[0], Family.IPV6, KEPT, id="IPv4 CIDR, IPv6"),
        pytest.param(POD_CIDRS[1], Family.IPV6, NODES, id="IPv6 CIDR, IPv6"),
        pytest.param(POD_CIDRS[1], Family.IPV4, KEPT, id="IPv6 CIDR, IPv4"),
    ],
)
def test_a_cluster_cidr_of_one_family_is_no_detection_in_the_other(
    served: Cluster, agent: Running, cidr: str, family: Family, outside: str
) -> None:
    agent.with_flags(("--cluster-cidr", cidr))
    seen = {c: served.world[c].ask(of_family(family, HERE), 80).peers for c in ("caller", "outside", NODE)}

    node = towards_pods(served, family)
    assert seen == {
        "caller": {served.world["caller"].address(family)},
        "outside": {served.world["outside"].address(family) if outside == KEPT else node},
        NODE: {served.world[NODE].address(family) if outside == KEPT else node},
    }


@PROTOCOLS
@FAMILIES
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(WITH_POD_CIDRS, id="ClusterCIDR"),
        pytest.param(WITHOUT_DETECTION, id="no detection"),
        pytest.param((*WITH_POD_CIDRS, "--masquerade-all"), id="masquerade-all"),
    ],
)
def test_a_pod_that_gets_itself_sees_the_node(
    served: Cluster, agent: Running, flags: tuple[str, ...], family: Family, protocol: Protocol
) -> None:
    agent.with_flags(flags)
    survey = served.world["web-0"].ask(of_family(family, HERE), 80, protocol, count=5)

    assert survey.names == {"web-0": 5}
    assert survey.peers == {towards_pods(served, family)}


@PROTOCOLS
@FAMILIES
def test_only_the_hairpin_is_masqueraded(served: Cluster, agent: Running, family: Family, protocol: Protocol) -> None:
    agent.with_flags(WITH_POD_CIDRS)
    pod = served.world["web-0"]
    survey = pod.ask(of_family(family, PAIR), 80, protocol, count=60)

    sources = {name: {answer.peer for answer in survey if answer.name == name} for name in ("web-0", "web-1")}
    assert not survey.failures
    assert sources == {"web-0": {towards_pods(served, family)}, "web-1": {pod.address(family)}}


@PROTOCOLS
@FAMILIES
def test_other_protocols_are_masqueraded_alike(
    served: Cluster, agent: Running, family: Family, protocol: Protocol
) -> None:
    agent.with_flags(WITH_POD_CIDRS)
    node = towards_pods(served, family)

    seen = {c: served.world[c].ask(of_family(family, HERE), 80, protocol).peers for c in ("caller", "outside", NODE)}

    assert seen == {"caller": {served.world["caller"].address(family)}, "outside": {node}, NODE: {node}}


@FAMILIES
def test_a_connection_straight_to_an_endpoint_is_left_alone(served: Cluster, agent: Running, family: Family) -> None:
    agent.with_flags((*WITH_POD_CIDRS, "--masquerade-all"))

    survey = served.world["outside"].ask(served.world["web-0"].address(family), 8080)

    assert survey.peers == {served.world["outside"].address(family)}
