"""The commands that build a world, as text."""

from nodeagent.lab.net.topology import Node, OutsideHost, Pod, Topology
from nodeagent.lab.net.wiring import Step
from nodeagent.model.addresses import Family
from tests.harness.worlds.routed_wiring import plan
from tests.harness.worlds.topology import standard_topology

SMALL = Topology(
    (
        Node(
            "node",
            ("192.168.0.2", "2001:db8::2"),
            ("10.244.1.1",),
            (Pod("pod", ("10.244.1.10",)),),
            ("10.96.0.0/16", "fd00:10:96::/112"),
        ),
    ),
    (OutsideHost("client", ("203.0.113.2",)),),
)


def test_a_small_world_is_wired_from_the_inside_out() -> None:
    assert plan(SMALL, lambda member: f"ns-{member}") == [
        Step(
            "underlay",
            (
                "link set lo up",
                "addr add 192.0.0.8/32 dev lo",
                "addr add fd00:ffff::8/128 dev lo",
                "link add node type veth peer name eth0 netns ns-node",
                "link set node up",
                "addr add 169.254.1.1/32 dev node scope link",
                "addr add fe80::1/64 dev node nodad",
                "route add 192.168.0.2/32 dev node",
                "route add 2001:db8::2/128 dev node",
                "route add 10.244.1.1/32 via 192.168.0.2 dev node onlink",
                "route add 10.244.1.10/32 via 192.168.0.2 dev node onlink",
                "route add 10.96.0.0/16 via 192.168.0.2 dev node onlink",
                "route add fd00:10:96::/112 via 2001:db8::2 dev node onlink",
                "link add client type veth peer name eth0 netns ns-client",
                "link set client up",
                "addr add 169.254.1.1/32 dev client scope link",
                "addr add fe80::1/64 dev client nodad",
                "route add 203.0.113.2/32 dev client",
            ),
        ),
        Step("underlay", ("rule add iif node to 10.96.0.0/16 type unreachable",), Family.IPV4),
        Step("underlay", ("rule add iif node to fd00:10:96::/112 type unreachable",), Family.IPV6),
        Step(
            "node",
            (
                "link set lo up",
                "link set eth0 up",
                "addr add 192.168.0.2/24 dev eth0 noprefixroute",
                "addr add 2001:db8::2/64 dev eth0 noprefixroute nodad",
                "route add default via 169.254.1.1 dev eth0 onlink",
                "route add default via fe80::1 dev eth0 onlink",
                "link add pod type veth peer name eth0 netns ns-pod",
                "link set pod up",
                "addr add 10.244.1.1/32 dev pod",
                "route add 10.244.1.10/32 dev pod",
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


def test_a_link_is_made_before_its_far_end_is_set_up() -> None:
    steps = plan(standard_topology(), lambda member: member)
    made: set[str] = {"underlay"}
    for step in steps:
        assert step.member in made
        made |= {line.split()[-1] for line in step.lines if line.startswith("link add")}


def test_the_standard_topology_has_both_families_everywhere() -> None:
    for addresses in standard_topology().addresses.values():
        assert [":" in address for address in addresses] == [False, True]
