"""Whom an endpoint sees as its client, on every way to it: the client, or the node.

As kube-proxy has it: the node's address comes instead of others' at external addresses with policy Cluster, at ClusterIPs for
all but pods where pods can be recognised, and where a pod is its own endpoint. With policy Local nobody's but the node's own is rewritten.
"""

import itertools
import re
import signal
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pytest

from nodeagent.lab.net.topology import POD_BRIDGE
from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.objects import NodeSpec
from tests.harness.cluster import NODE, WITH_POD_CIDRS
from tests.harness.objects import make_node
from tests.harness.serving_node import ServingNode
from tests.harness.sniffing import Sniffing
from tests.netns.services.ways import EXTERNAL, GATEWAYS, NODE_ADDRESSES, build, of, place

NODE_POD_CIDRS = ("10.244.1.0/24", "fd00:244:1::/64")
PROTOCOLS = (Protocol.TCP, Protocol.UDP)
CLIENTS = ("caller", "web-0", NODE, "far-0", "outside")
WAYS = ("ClusterIP", *EXTERNAL)
ENDPOINTS = {1: "web-0", 2: "web-0", 3: "far-0", 4: "far-0"}
"""By number of the Service: its only endpoint."""
LOCAL = {2, 4}
"""Services with both policies Local."""
PREFIX = "c"
FLAGS = {
    "ClusterCIDR": WITH_POD_CIDRS,
    "NodeCIDR": ("--detect-local-mode", "NodeCIDR"),
    "BridgeInterface": ("--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", POD_BRIDGE),
    "InterfaceNamePrefix": ("--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", PREFIX),
    "none": (),
    "ClusterCIDR, masqueradeAll": (*WITH_POD_CIDRS, "--masquerade-all"),
    "none, masqueradeAll": ("--masquerade-all",),
}


class Connection(NamedTuple):
    """protocol, way: how the Service `number` with this only endpoint is asked, by whom."""

    protocol: Protocol
    way: str
    number: int
    endpoint: str
    client: str


@pytest.fixture(scope="module")
def exposed(served: ServingNode) -> ServingNode:
    """Services with one endpoint each, here or on the other node, with either policy."""
    cluster = served.cluster
    node = make_node(NODE, served.world[NODE].addresses)
    cluster.manifests.put(msgspec.structs.replace(node, spec=NodeSpec(NODE_POD_CIDRS[0], NODE_POD_CIDRS)))
    for number, endpoint in ENDPOINTS.items():
        policy = "Local" if number in LOCAL else "Cluster"
        service = build(f"s{number}", number, external=policy, internal=policy)
        cluster.manifests.put(*served.slices(service, endpoint), service)
    return served


def is_pod(client: str, mode: str, pod_bridge: str) -> bool:
    """Whether kube-proxy takes it for a pod."""
    of_this_node = client in ("caller", "web-0")
    interface = (pod_bridge or client) if of_this_node else ""
    return {
        "ClusterCIDR": of_this_node or client == "far-0",
        "NodeCIDR": of_this_node,
        "BridgeInterface": interface == POD_BRIDGE,
        "InterfaceNamePrefix": interface.startswith(PREFIX),
        "none": False,
    }[mode.partition(",")[0]]


def is_rewritten(client: str, way: str, number: int, mode: str, *, pod: bool) -> bool:
    """Whether the endpoint sees the node."""
    if client == ENDPOINTS[number]:
        return True
    if way == "ClusterIP":
        return mode.endswith("masqueradeAll") or (mode != "none" and not pod)
    return client == NODE or number not in LOCAL


def gets_through(client: str, way: str, number: int, *, pod: bool, rewritten: bool) -> bool:
    """Whether there is a connection: not where policy Local keeps it from an endpoint elsewhere, nor where the answer would
    not come back by this node."""
    if ENDPOINTS[number] == "web-0":
        return True
    if number in LOCAL and (way == "ClusterIP" or not (pod or client == NODE)):
        return False
    return client != "far-0" and (rewritten or client != "outside")


def expected(exposed: ServingNode, family: Family, mode: str, pod_bridge: str) -> dict[Connection, str]:
    """The address that the endpoint sees, of every connection there is."""
    found: dict[Connection, str] = {}
    for way, number, client in itertools.product(WAYS, ENDPOINTS, CLIENTS):
        pod = is_pod(client, mode, pod_bridge)
        rewritten = is_rewritten(client, way, number, mode, pod=pod)
        if gets_through(client, way, number, pod=pod, rewritten=rewritten):
            node = of(family, GATEWAYS if ENDPOINTS[number] == "web-0" else NODE_ADDRESSES)
            source = node if rewritten else exposed.world[client].address(family)
            found |= {Connection(protocol, way, number, ENDPOINTS[number], client): source for protocol in PROTOCOLS}
    return found


def ask_all(exposed: ServingNode, family: Family, connections: Iterable[Connection]) -> dict[Connection, str]:
    """The address that the endpoint saw, or why there was no answer."""
    seen = {}
    for one in connections:
        answer = exposed.world[one.client].ask(*place(one.way, one.number, family), one.protocol).only
        seen[one] = answer.failure.value if answer.failure else answer.peer
    return seen


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize("mode", FLAGS)
def test_whom_the_endpoint_sees(exposed: ServingNode, mode: str, family: Family, pod_bridge: str) -> None:
    exposed.run_agent(*FLAGS[mode])
    wanted = expected(exposed, family, mode, pod_bridge)

    assert ask_all(exposed, family, wanted) == wanted


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
@pytest.mark.parametrize(
    ("number", "kept"),
    [
        pytest.param(3, True, id="it leaves by the address's interface"),
        pytest.param(1, False, id="it leaves by another"),
    ],
)
def test_the_nodes_source_is_not_rewritten_to_itself(
    exposed: ServingNode, family: Family, number: int, *, kept: bool
) -> None:
    """A rewritten source has a random port, too; what is left alone keeps its own."""
    exposed.run_agent(*WITH_POD_CIDRS)
    node = exposed.world[NODE]
    exposed.world.run(NODE, ["conntrack", "-F"])
    answer = node.ask(*place("ClusterIP", number, family), Protocol.TCP).only
    (tracked,) = (
        line
        for line in exposed.world.run(
            NODE, ["conntrack", "-L", "-f", f"ipv{family.value[-1]}", "-p", "tcp"]
        ).stdout.splitlines()
        if f"dst={place('ClusterIP', number, family)[0]} " in line
    )
    sent, answered = re.findall(r"sport=(\d+) dport=(\d+)", tracked)

    assert answer.peer == of(family, NODE_ADDRESSES if kept else GATEWAYS)
    assert answer.peer_port == int(answered[1])
    assert (answered[1] == sent[0]) is kept


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_no_answer_is_left_untranslated(exposed: ServingNode, family: Family) -> None:
    """A pod beside the endpoint hears its answers from the Service alone."""
    exposed.run_agent(*WITH_POD_CIDRS)
    caller = exposed.world["caller"]
    server = exposed.world["web-0"].address(family)
    with Sniffing(caller, "eth0") as sniffing:
        for protocol, way in itertools.product(PROTOCOLS, WAYS):
            assert not caller.ask(*place(way, 1, family), protocol, count=3).failures
        packets = sniffing.stop()
    sources = {packet.source for packet in packets if packet.protocol in PROTOCOLS and not packet.outgoing}

    assert sources == {place(way, 1, family)[0] for way in WAYS}
    assert server not in sources


@pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
def test_a_missing_input_interface_would_be_seen(exposed: ServingNode, family: Family, pod_bridge: str) -> None:
    """A control: where the rules took every packet without one for the node's own, a pod behind the bridge lost its source."""
    caller, web = exposed.world["caller"], place("ClusterIP", 1, family)
    kept, table = caller.address(family), f"{'ip' if family is Family.IPV4 else 'ip6'} nodeagent"
    agent = exposed.run_agent(*WITH_POD_CIDRS)
    with exposed.cluster.a_plain_table(agent, *WITH_POD_CIDRS) as writer:
        assert caller.ask(*web).peers == {kept}
        writer.signal(signal.SIGSTOP)  # on a busy machine it would remove the rule before the question
        try:
            exposed.world.nft(NODE, f"insert rule {table} postrouting ct status dnat iif 0 masquerade")
            peers = caller.ask(*web).peers
        finally:
            writer.signal(signal.SIGCONT)
    assert peers == ({of(family, GATEWAYS)} if pod_bridge else {kept})
