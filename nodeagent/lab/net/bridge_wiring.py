"""Topology → the `ip` commands that build it around a bridge, as batches for its namespaces. Pure text.

Hosts are joined as in most clusters: nodes are neighbours on one network, each has a route to every other node's pod
range, and only hosts of other networks go through the router (`wiring`), which is the same namespace as the bridge. Addresses that several nodes announce are spread over them by flow, as with BGP speakers.
"""

from collections.abc import Iterable, Iterator

from nodeagent.lab.net.pod_wiring import NamespaceOf, node_ends, pod_side
from nodeagent.lab.net.prefixes import families, host_prefix, is_within, nodad, with_length
from nodeagent.lab.net.topology import UNDERLAY, Node, OutsideHost, Topology, first_of
from nodeagent.lab.net.wiring import UNDERLAY_ADDRESSES, Step
from nodeagent.lab.net.wiring import underlay_side as link_to_other_network
from nodeagent.lab.net.wiring import uplink as routed_uplink
from nodeagent.model.addresses import Family, family_of

BRIDGE = "br0"
BRIDGE_ADDRESSES = ("192.168.0.1", "2001:db8::1")
"""The router on the bridge's network: the default gateway of its hosts."""


def plan(topology: Topology, namespace_of: NamespaceOf) -> list[Step]:
    """Returns the steps in the order in which they must be done."""
    hosts: tuple[Node | OutsideHost, ...] = (*topology.nodes, *topology.outside)
    neighbours = [host for host in hosts if is_neighbour(host)]
    strangers = [host for host in topology.outside if not is_neighbour(host)]
    inside = [*bridge(), *(line for host in neighbours for line in underlay_side(host, namespace_of))]
    outside = [line for host in strangers for line in link_to_other_network(host, namespace_of)]
    steps = [Step(UNDERLAY, ("link set lo up", *inside, *outside, *router_routes(topology.nodes)))]
    steps += [Step(UNDERLAY, tuple(no_way_between_nodes(topology.nodes, family)), family) for family in Family]
    for node in topology.nodes:
        others = [other for other in topology.nodes if other is not node]
        own = (*unreachable_pod_range(node), *routes_to_pods(others), *node_ends(node, namespace_of))
        steps.append(Step(node.name, (*uplink(node), *own)))
    for host in topology.outside:
        ways = (*uplink(host), *routes_to_pods(topology.nodes)) if is_neighbour(host) else tuple(routed_uplink(host))
        steps.append(Step(host.name, ways))
    steps += [Step(pod.name, tuple(pod_side(node, pod))) for node in topology.nodes for pod in node.pods]
    return [step for step in steps if step.lines]


def is_neighbour(host: Node | OutsideHost) -> bool:
    """Returns whether the host is on the bridge: its addresses are in the bridge's networks."""
    return all(is_within(address, BRIDGE_ADDRESSES) for address in host.addresses)


def bridge() -> Iterator[str]:
    """Yields the commands for the bridge, and the router on it."""
    yield f"link add {BRIDGE} type bridge mcast_snooping 0"
    yield f"link set {BRIDGE} up"
    for address in BRIDGE_ADDRESSES:
        yield f"addr add {with_length(address)} dev {BRIDGE}{nodad(address)}"
    for address in UNDERLAY_ADDRESSES:
        yield f"addr add {host_prefix(address)} dev lo"


def underlay_side(host: Node | OutsideHost, namespace_of: NamespaceOf) -> Iterator[str]:
    """Yields the commands for a neighbour's link on the bridge."""
    yield f"link add {host.name} type veth peer name eth0 netns {namespace_of(host.name)}"
    yield f"link set {host.name} master {BRIDGE} up"


def routes_to_pods(nodes: Iterable[Node]) -> Iterator[str]:
    """Yields the routes to the pods of these nodes, over the bridge."""
    for node in nodes:
        for cidr in node.pod_cidrs:
            yield f"route add {cidr} via {first_of(family_of(cidr), node.addresses)}"


def router_routes(nodes: Iterable[Node]) -> Iterator[str]:
    """Yields the router's routes: every pod range, and the prefixes that nodes announce."""
    nodes = list(nodes)
    yield from routes_to_pods(nodes)
    for prefix in dict.fromkeys(prefix for node in nodes for prefix in node.attracts):
        family = family_of(prefix)
        hops = [f"nexthop via {first_of(family, n.addresses)} dev {BRIDGE}" for n in nodes if prefix in n.attracts]
        yield f"route add {prefix} {' '.join(hops)}"


def no_way_between_nodes(nodes: Iterable[Node], family: Family) -> Iterator[str]:
    """Yields rules that keep packets for announced prefixes from going from one node to the next."""
    for prefix in dict.fromkeys(prefix for node in nodes for prefix in node.attracts):
        if family_of(prefix) is family:
            yield f"rule add iif {BRIDGE} to {prefix} type unreachable"


def uplink(host: Node | OutsideHost) -> Iterator[str]:
    """Yields a neighbour's own link: addresses with the network's length, the router as default gateway."""
    yield "link set lo up"
    yield "link set eth0 up"
    for address in host.addresses:
        yield f"addr add {with_length(address)} dev eth0{nodad(address)}"
    for family in families(host.addresses):
        yield f"route add default via {first_of(family, BRIDGE_ADDRESSES)}"


def unreachable_pod_range(node: Node) -> Iterator[str]:
    """Yields routes that make unused addresses of the node's pod range unreachable, to avoid routing loops. A bridge of
    pods does not need them."""
    for cidr in () if node.pod_bridge else node.pod_cidrs:
        yield f"route add unreachable {cidr}"
