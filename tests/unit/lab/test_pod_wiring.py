"""The commands that join pods to their node, as text."""

from nodeagent.lab.net.pod_wiring import node_ends, pod_side
from nodeagent.lab.net.topology import NO_BRIDGE, Node, Pod

NEAR, ODD = Pod("near", ("10.244.1.10", "fd00:244:1::a")), Pod("odd", ("10.9.9.9",))


def node(pod_bridge: str) -> Node:
    gateways = ("10.244.1.1", "fd00:244:1::1")
    return Node("node", ("192.168.0.2", "2001:db8::2"), gateways, (NEAR, ODD), pod_bridge=pod_bridge)


def test_pods_behind_a_bridge_are_its_ports_and_neighbours() -> None:
    assert list(node_ends(node("cni0"), lambda member: f"ns-{member}")) == [
        "link add cni0 address 02:00:00:00:00:01 type bridge mcast_snooping 0",
        "link set cni0 up",
        "addr add 10.244.1.1/24 dev cni0",
        "addr add fd00:244:1::1/64 dev cni0 nodad",
        "link add near type veth peer name eth0 address 0a:58:0a:f4:01:0a netns ns-near",
        "link set near master cni0 up",
        "link set near type bridge_slave hairpin on",
        "link add odd type veth peer name eth0 address 0a:58:0a:09:09:09 netns ns-odd",
        "link set odd master cni0 up",
        "link set odd type bridge_slave hairpin on",
        "route add 10.9.9.9/32 dev cni0",
    ]
    assert list(pod_side(node("cni0"), NEAR)) == [
        "link set lo up",
        "addr add 10.244.1.10/24 dev eth0",
        "addr add fd00:244:1::a/64 dev eth0 nodad",
        "link set eth0 up",
        "route add default via 10.244.1.1 dev eth0 onlink",
        "route add default via fd00:244:1::1 dev eth0 onlink",
    ]
    assert "addr add 10.9.9.9/32 dev eth0" in pod_side(node("cni0"), ODD)


def test_pods_with_links_of_their_own_have_the_gateway_on_each() -> None:
    lines = list(node_ends(node(NO_BRIDGE), lambda member: f"ns-{member}"))
    assert lines[:6] == [
        "link add near type veth peer name eth0 netns ns-near",
        "link set near up",
        "addr add 10.244.1.1/32 dev near",
        "addr add fd00:244:1::1/128 dev near nodad",
        "route add 10.244.1.10/32 dev near",
        "route add fd00:244:1::a/128 dev near",
    ]
    assert "addr add 10.244.1.10/32 dev eth0" in pod_side(node(NO_BRIDGE), NEAR)
