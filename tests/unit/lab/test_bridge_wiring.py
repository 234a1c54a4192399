"""The commands that build a world around a bridge, as text."""

from nodeagent.lab.net.bridge_wiring import is_neighbour, plan
from nodeagent.lab.net.topology import Node, OutsideHost, Pod, Topology
from nodeagent.lab.net.wiring import Step
from nodeagent.model.addresses import Family


def node(number: int, *pods: Pod) -> Node:
    return Node(
        f"node-{number}",
        (f"192.168.0.1{number}",),
        (f"10.244.{number}.1",),
        pods,
        ("198.51.100.0/24",),
        (f"10.244.{number}.0/24",),
    )


SMALL = Topology(
    (node(1, Pod("pod", ("10.244.1.10",))), node(2)),
    (OutsideHost("control", ("192.168.0.2",)), OutsideHost("client", ("203.0.113.2",))),
)


def test_a_small_world_is_wired_around_the_bridge() -> None:
    assert plan(SMALL, lambda member: f"ns-{member}") == [
        Step(
            "underlay",
            (
                "link set lo up",
                "link add br0 type bridge mcast_snooping 0",
                "link set br0 up",
                "addr add 192.168.0.1/24 dev br0",
                "addr add 2001:db8::1/64 dev br0 nodad",
                "addr add 192.0.0.8/32 dev lo",
                "addr add fd00:ffff::8/128 dev lo",
                "link add node-1 type veth peer name eth0 netns ns-node-1",
                "link set node-1 master br0 up",
                "link add node-2 type veth peer name eth0 netns ns-node-2",
                "link set node-2 master br0 up",
                "link add control type veth peer name eth0 netns ns-control",
                "link set control master br0 up",
                "link add client type veth peer name eth0 netns ns-client",
                "link set client up",
                "addr add 169.254.1.1/32 dev client scope link",
                "addr add fe80::1/64 dev client nodad",
                "route add 203.0.113.2/32 dev client",
                "route add 10.244.1.0/24 via 192.168.0.11",
                "route add 10.244.2.0/24 via 192.168.0.12",
                "route add 198.51.100.0/24 nexthop via 192.168.0.11 dev br0 nexthop via 192.168.0.12 dev br0",
            ),
        ),
        Step("underlay", ("rule add iif br0 to 198.51.100.0/24 type unreachable",), Family.IPV4),
        Step(
            "node-1",
            (
                "link set lo up",
                "link set eth0 up",
                "addr add 192.168.0.11/24 dev eth0",
                "route add default via 192.168.0.1",
                "route add unreachable 10.244.1.0/24",
                "route add 10.244.2.0/24 via 192.168.0.12",
                "link add pod type veth peer name eth0 netns ns-pod",
                "link set pod up",
                "addr add 10.244.1.1/32 dev pod",
                "route add 10.244.1.10/32 dev pod",
            ),
        ),
        Step(
            "node-2",
            (
                "link set lo up",
                "link set eth0 up",
                "addr add 192.168.0.12/24 dev eth0",
                "route add default via 192.168.0.1",
                "route add unreachable 10.244.2.0/24",
                "route add 10.244.1.0/24 via 192.168.0.11",
            ),
        ),
        Step(
            "control",
            (
                "link set lo up",
                "link set eth0 up",
                "addr add 192.168.0.2/24 dev eth0",
                "route add default via 192.168.0.1",
                "route add 10.244.1.0/24 via 192.168.0.11",
                "route add 10.244.2.0/24 via 192.168.0.12",
            ),
        ),
        Step(
            "client",
            (
                "link set lo up",
                "link set eth0 up",
                "addr add 203.0.113.2/32 dev eth0",
                "route add default via 169.254.1.1 dev eth0 onlink",
            ),
        ),
        Step(
            "pod",
            (
                "link set lo up",
                "addr add 10.244.1.10/32 dev eth0",
                "link set eth0 up",
                "route add default via 10.244.1.1 dev eth0 onlink",
            ),
        ),
    ]


def test_hosts_of_the_bridges_networks_are_its_neighbours() -> None:
    assert is_neighbour(OutsideHost("a", ("192.168.0.77", "2001:db8::77")))
    assert not is_neighbour(OutsideHost("b", ("192.168.1.77",)))
    assert not is_neighbour(OutsideHost("c", ("192.168.0.77", "2001:db8:1::77")))
