"""Whom an endpoint sees as its client: the client itself, or the node where only that makes the answer come back."""

from collections.abc import Sequence

import msgspec
import pytest

from nodeagent.lab.net.process import AgentProcess
from nodeagent.lab.net.topology import POD_CIDRS
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import NodeSpec
from tests.harness.cluster import NODE, WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.objects import make_node, service_port

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
PROTOCOLS = pytest.mark.parametrize("protocol", Protocol, ids=lambda protocol: protocol.name)

PORTS = tuple(service_port(80, protocol, name=protocol.name.lower()) for protocol in Protocol)
HERE, THERE, PAIR = cluster_ips(1), cluster_ips(2), cluster_ips(3)
NODE_POD_CIDRS = ("10.244.1.0/24", "fd00:244:1::/48")
KEPT, NODES = "kept", "the node's"

WITHOUT_DETECTION: tuple[str, ...] = ()
NODE_CIDR = ("--detect-local-mode", "NodeCIDR")
BRIDGE = ("--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0")
PREFIX = ("--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "call")


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Cluster:
    """Services with an endpoint on this node, on the other, and with two; pod `bridged` is behind a bridge."""
    world = cluster.world
    for pod in ("web-0", "web-1", "far-0"):
        for protocol in Protocol:
            world[pod].serve(8080, protocol)
    cluster.expose("here", *HERE, pods=["web-0"], ports=PORTS)
    cluster.expose("there", *THERE, pods=["far-0"], ports=PORTS)
    cluster.expose("pair", *PAIR, pods=["web-0", "web-1"], ports=PORTS)
    node = make_node(NODE, world[NODE].addresses)
    cluster.manifests.put(msgspec.structs.replace(node, spec=NodeSpec(NODE_POD_CIDRS[0], NODE_POD_CIDRS)))
    put_behind_bridge(cluster, "web-2")
    return cluster


def put_behind_bridge(cluster: Cluster, pod: str) -> None:
    """Move the node's end of a pod's link, with all that is on it, behind the bridge `cni0`."""
    gateways = "10.244.1.1/32", "fd00:244:1::1/128"
    lines = [
        "link add cni0 type bridge",
        "link set cni0 up",
        f"link set {pod} master cni0",
        *(f"addr add {gateway} dev cni0{' nodad' if ':' in gateway else ''}" for gateway in gateways),
        *(f"addr del {gateway} dev {pod}" for gateway in gateways),
        *(f"route replace {address} dev cni0" for address in cluster.world[pod].addresses),
    ]
    cluster.world.run(NODE, ["ip", "-batch", "-"], stdin="\n".join(lines))


class Running:
    """The one agent of this module, started anew only when the flags change."""

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


def towards(cluster: Cluster, family: Family, service: tuple[str, str]) -> str:
    """The node's address that a masqueraded connection to the service's endpoint comes from."""
    gateways = cluster.world.topology.nodes[0].pod_gateways
    return of_family(family, cluster.world[NODE].addresses if service == THERE else gateways)


@FAMILIES
@pytest.mark.parametrize("service", [pytest.param(HERE, id="endpoint here"), pytest.param(THERE, id="endpoint there")])
@pytest.mark.parametrize(
    ("flags", "sources"),
    [
        pytest.param(
            WITH_POD_CIDRS,
            {"caller": KEPT, "web-2": KEPT, "far-0": KEPT, "outside": NODES, NODE: NODES},
            id="ClusterCIDR: pods of all nodes keep their address",
        ),
        pytest.param(
            (*WITH_POD_CIDRS, "--masquerade-all"),
            {"caller": NODES, "web-2": NODES, "far-0": NODES, "outside": NODES, NODE: NODES},
            id="masquerade-all: nobody does",
        ),
        pytest.param(
            WITHOUT_DETECTION,
            {"caller": KEPT, "web-2": KEPT, "far-0": KEPT, "outside": KEPT, NODE: KEPT},
            id="no detection: everybody, the node too",
        ),
        pytest.param(
            (*WITHOUT_DETECTION, "--masquerade-all"),
            {"caller": NODES, "web-2": NODES, "far-0": NODES, "outside": NODES, NODE: NODES},
            id="masquerade-all needs no detection",
        ),
        pytest.param(
            NODE_CIDR,
            {"caller": KEPT, "web-2": KEPT, "far-0": NODES, "outside": NODES, NODE: NODES},
            id="NodeCIDR: pods of this node",
        ),
        pytest.param(
            BRIDGE,
            {"caller": NODES, "web-2": KEPT, "far-0": NODES, "outside": NODES, NODE: NODES},
            id="BridgeInterface: pods behind the bridge",
        ),
        pytest.param(
            PREFIX,
            {"caller": KEPT, "web-2": NODES, "far-0": NODES, "outside": NODES, NODE: NODES},
            id="InterfaceNamePrefix: pods on such interfaces",
        ),
    ],
)
def test_who_keeps_the_source_address(
    served: Cluster,
    agent: Running,
    flags: tuple[str, ...],
    sources: dict[str, str],
    service: tuple[str, str],
    family: Family,
) -> None:
    agent.with_flags(flags)
    # An endpoint elsewhere answers these past this node: only a masqueraded connection of theirs can work.
    elsewhere = {"far-0", "outside"} if service == THERE else set()
    clients = [client for client, source in sources.items() if client not in elsewhere or source == NODES]

    seen = {client: served.world[client].ask(of_family(family, service), 80).peers for client in clients}

    node = towards(served, family, service)
    assert seen == {c: {served.world[c].address(family) if sources[c] == KEPT else node} for c in clients}


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

    node = towards(served, family, HERE)
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
    assert survey.peers == {towards(served, family, HERE)}


@PROTOCOLS
@FAMILIES
def test_only_the_hairpin_is_masqueraded(served: Cluster, agent: Running, family: Family, protocol: Protocol) -> None:
    agent.with_flags(WITH_POD_CIDRS)
    pod = served.world["web-0"]
    survey = pod.ask(of_family(family, PAIR), 80, protocol, count=60)

    sources = {name: {answer.peer for answer in survey if answer.name == name} for name in ("web-0", "web-1")}
    assert not survey.failures
    assert sources == {"web-0": {towards(served, family, PAIR)}, "web-1": {pod.address(family)}}


@PROTOCOLS
@FAMILIES
def test_other_protocols_are_masqueraded_alike(
    served: Cluster, agent: Running, family: Family, protocol: Protocol
) -> None:
    agent.with_flags(WITH_POD_CIDRS)
    node = towards(served, family, HERE)

    seen = {c: served.world[c].ask(of_family(family, HERE), 80, protocol).peers for c in ("caller", "outside", NODE)}

    assert seen == {"caller": {served.world["caller"].address(family)}, "outside": {node}, NODE: {node}}


@FAMILIES
def test_a_connection_straight_to_an_endpoint_is_left_alone(served: Cluster, agent: Running, family: Family) -> None:
    agent.with_flags((*WITH_POD_CIDRS, "--masquerade-all"))

    survey = served.world["outside"].ask(served.world["web-0"].address(family), 8080)

    assert survey.peers == {served.world["outside"].address(family)}
