"""Topology → the `ip` commands that build it around a bridge, as batches for its namespaces. Pure text.

The other way to join hosts than `wiring`, and the way most clusters are: nodes are neighbours on one network, each
has a route to every other node's pod range, and only hosts of other networks come through the router, which is the
same namespace as the bridge. What several nodes attract is spread over them by flow, as BGP speakers have it.
"""

from collections.abc import Iterable, Iterator

from nodeagent.lab.net.pod_wiring import NamespaceOf, inwards, pod_side
from nodeagent.lab.net.prefixes import families, host_prefix, is_within, nodad, with_length
from nodeagent.lab.net.topology import UNDERLAY, Node, Outside, Pod, Topology, first_of
from nodeagent.lab.net.wiring import UNDERLAY_ADDRESSES, Step
from nodeagent.lab.net.wiring import underlay_side as stranger_side
from nodeagent.lab.net.wiring import uplink as routed_uplink
from nodeagent.model.addresses import Family, family_of

BRIDGE = "br0"
BRIDGE_ADDRESSES = ("192.168.0.1", "2001:db8::1")
"""The router on the bridge's network: the default gateway of its hosts."""


def plan(topology: Topology, namespace_of: NamespaceOf) -> list[Step]:
    """The steps in the order in which they have to be done."""
    hosts: tuple[Node | Outside, ...] = (*topology.nodes, *topology.outside)
    neighbours = [host for host in hosts if is_neighbour(host)]
    strangers = [host for host in topology.outside if not is_neighbour(host)]
    inside = [*bridge(), *(line for host in neighbours for line in underlay_side(host, namespace_of))]
    outside = [line for host in strangers for line in stranger_side(host, namespace_of)]
    steps = [Step(UNDERLAY, ("link set lo up", *inside, *outside, *ways_in(topology.nodes)))]
    steps += [Step(UNDERLAY, tuple(no_return(topology.nodes, family)), family) for family in Family]
    for node in topology.nodes:
        others = [other for other in topology.nodes if other is not node]
        own = (*own_range(node), *ways_to(others), *inwards(node, namespace_of))
        steps.append(Step(node.name, (*uplink(node), *own)))
    for host in topology.outside:
        ways = (*uplink(host), *ways_to(topology.nodes)) if is_neighbour(host) else tuple(routed_uplink(host))
        steps.append(Step(host.name, ways))
    steps += [Step(pod.name, tuple(pod_side(node, pod))) for node in topology.nodes for pod in node.pods]
    return [step for step in steps if step.lines]


def underlay_route(node: Node, pod: Pod) -> Iterator[str]:  # noqa: ARG001 - as the other wiring has it
    """Nothing: pod ranges are routed, not pods."""
    yield from ()


def forget_pod(pod: Pod) -> Iterator[str]:  # noqa: ARG001 - as the other wiring has it
    """Nothing."""
    yield from ()


def is_neighbour(host: Node | Outside) -> bool:
    """Whether it is on the bridge: its addresses are in the bridge's networks."""
    return all(is_within(address, BRIDGE_ADDRESSES) for address in host.addresses)


def bridge() -> Iterator[str]:
    """The bridge, and the router on it."""
    yield f"link add {BRIDGE} type bridge mcast_snooping 0"
    yield f"link set {BRIDGE} up"
    for address in BRIDGE_ADDRESSES:
        yield f"addr add {with_length(address)} dev {BRIDGE}{nodad(address)}"
    for address in UNDERLAY_ADDRESSES:
        yield f"addr add {host_prefix(address)} dev lo"


def underlay_side(host: Node | Outside, namespace_of: NamespaceOf) -> Iterator[str]:
    """A neighbour's link on the bridge."""
    yield f"link add {host.name} type veth peer name eth0 netns {namespace_of(host.name)}"
    yield f"link set {host.name} master {BRIDGE} up"


def ways_to(nodes: Iterable[Node]) -> Iterator[str]:
    """The routes to the pods of these nodes, over the bridge."""
    for node in nodes:
        for cidr in node.pod_cidrs:
            yield f"route add {cidr} via {first_of(family_of(cidr), node.addresses)}"


def ways_in(nodes: Iterable[Node]) -> Iterator[str]:
    """What the router knows: every pod range, and which nodes attract what."""
    nodes = list(nodes)
    yield from ways_to(nodes)
    for prefix in dict.fromkeys(prefix for node in nodes for prefix in node.attracts):
        family = family_of(prefix)
        hops = [f"nexthop via {first_of(family, n.addresses)} dev {BRIDGE}" for n in nodes if prefix in n.attracts]
        yield f"route add {prefix} {' '.join(hops)}"


def no_return(nodes: Iterable[Node], family: Family) -> Iterator[str]:
    """What nodes attract does not go from one node to the next."""
    for prefix in dict.fromkeys(prefix for node in nodes for prefix in node.attracts):
        if family_of(prefix) is family:
            yield f"rule add iif {BRIDGE} to {prefix} type unreachable"


def uplink(host: Node | Outside) -> Iterator[str]:
    """The own end of a neighbour: addresses with the network's length, the router as default gateway."""
    yield "link set lo up"
    yield "link set eth0 up"
    for address in host.addresses:
        yield f"addr add {with_length(address)} dev eth0{nodad(address)}"
    for family in families(host.addresses):
        yield f"route add default via {first_of(family, BRIDGE_ADDRESSES)}"


def own_range(node: Node) -> Iterator[str]:
    """Addresses of the node's pod range that no pod has are unreachable at once, instead of circling. A bridge of pods has the range."""
    for cidr in () if node.pod_bridge else node.pod_cidrs:
        yield f"route add unreachable {cidr}"
