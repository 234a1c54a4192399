"""Topology → the `ip` commands that build it around a router with host routes. Pure text.

All links between hosts are point to point with host routes, so any address can be anywhere. Each host's uplink is
`eth0`; its other end, on the node or the underlay, has the host's name. Links are created from the inner end (node,
underlay), so those steps come before the ones of the hosts behind them.
"""

from collections.abc import Iterator

from nodeagent.lab.net.pod_wiring import NamespaceOf, node_ends, pod_side
from nodeagent.lab.net.prefixes import families, host_prefix, nodad, with_length
from nodeagent.lab.net.topology import UNDERLAY, Node, OutsideHost, Pod, Topology, first_of
from nodeagent.lab.net.wiring import ROUTER, UNDERLAY_ADDRESSES, Step, uplink
from nodeagent.lab.net.wiring import underlay_side as link_to_host
from nodeagent.model.addresses import Family, family_of


def plan(topology: Topology, namespace_of: NamespaceOf) -> list[Step]:
    """Returns the steps in the order in which they must be done."""
    hosts: tuple[Node | OutsideHost, ...] = (*topology.nodes, *topology.outside)
    outwards = [line for host in hosts for line in underlay_side(host, namespace_of)]
    own = [f"addr add {host_prefix(address)} dev lo" for address in UNDERLAY_ADDRESSES]
    steps = [Step(UNDERLAY, ("link set lo up", *own, *outwards))]
    steps += [Step(UNDERLAY, tuple(no_return(topology, family)), family) for family in Family]
    for node in topology.nodes:
        steps.append(Step(node.name, (*node_uplink(node), *node_ends(node, namespace_of))))
    steps += [Step(host.name, tuple(uplink(host))) for host in topology.outside]
    steps += [Step(pod.name, tuple(pod_side(node, pod))) for node in topology.nodes for pod in node.pods]
    return [step for step in steps if step.lines]


def underlay_side(host: Node | OutsideHost, namespace_of: NamespaceOf) -> Iterator[str]:
    """Yields the commands for the underlay's link to one host, and its routes to everything behind it."""
    yield from link_to_host(host, namespace_of)
    if isinstance(host, Node):
        # Elsewhere these are in the range of pods. The kernel may choose one as the node's source.
        for gateway in host.pod_gateways:
            if family_of(gateway) in families(host.addresses):
                yield f"route add {host_prefix(gateway)} via {first_of(family_of(gateway), host.addresses)} dev {host.name} onlink"
        for pod in host.pods:
            yield from underlay_route(host, pod)
        for prefix in host.attracts:
            yield f"route add {prefix} via {first_of(family_of(prefix), host.addresses)} dev {host.name} onlink"


def node_uplink(node: Node) -> Iterator[str]:
    """Yields the commands for a node's own end: addresses with a /24 or /64, as real ones have, but without the route to that network."""
    yield "link set lo up"
    yield "link set eth0 up"
    for address in node.addresses:
        yield f"addr add {with_length(address)} dev eth0 noprefixroute{nodad(address)}"
    for family in families(node.addresses):
        yield f"route add default via {ROUTER[family]} dev eth0 onlink"


def no_return(topology: Topology, family: Family) -> Iterator[str]:
    """Yields rules that keep packets for prefixes that a node attracts from coming back to it."""
    for node in topology.nodes:
        for prefix in node.attracts:
            if family_of(prefix) is family:
                yield f"rule add iif {node.name} to {prefix} type unreachable"


def underlay_route(node: Node, pod: Pod) -> Iterator[str]:
    """Yields the underlay's routes to one pod."""
    for address in pod.addresses:
        yield f"route add {host_prefix(address)} via {first_of(family_of(address), node.addresses)} dev {node.name} onlink"


def forget_pod(pod: Pod) -> Iterator[str]:
    """Yields the commands that remove these routes."""
    for address in pod.addresses:
        yield f"route del {host_prefix(address)}"
