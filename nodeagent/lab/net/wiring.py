"""Topology → the `ip` commands that build it, as batches for its namespaces. Pure text.

All links between hosts are point to point with host routes, so any address can be anywhere. Each host's uplink is
`eth0`; its other end, on the node or the underlay, has the host's name. Links are created from the inner end (node,
underlay), so those steps come before the ones of the hosts behind them.
"""

from collections.abc import Iterator

from msgspec import Struct

from nodeagent.lab.net.pod_wiring import NamespaceOf, inwards, pod_side
from nodeagent.lab.net.prefixes import families, host_prefix, nodad, with_length
from nodeagent.lab.net.topology import UNDERLAY, Node, Outside, Pod, Topology, first_of
from nodeagent.model.addresses import Family, family_of

ROUTER = {Family.IPV4: "169.254.1.1", Family.IPV6: "fe80::1"}

UNDERLAY_ADDRESSES = ("192.0.0.8", "fd00:ffff::8")
"""Source addresses of its ICMP errors; they must be forwardable."""

QUIET = {
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
    "net/ipv6/conf/all/disable_ipv6": "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
    "net/ipv6/conf/all/accept_dad": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/accept_ra": "0",
}
"""Set everywhere before the first link: addresses are usable at once (no DAD), asymmetric routes are accepted."""

FORWARDING = {"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
"""For nodes and the underlay."""


class Step(Struct, frozen=True):
    """Commands for one `ip -batch` in one namespace; `family` for commands that do not know it from an address."""

    member: str
    lines: tuple[str, ...]
    family: Family | None = None


def plan(topology: Topology, namespace_of: NamespaceOf) -> list[Step]:
    """Returns the steps in the order in which they must be done."""
    hosts: tuple[Node | Outside, ...] = (*topology.nodes, *topology.outside)
    outwards = [line for host in hosts for line in underlay_side(host, namespace_of)]
    own = [f"addr add {host_prefix(address)} dev lo" for address in UNDERLAY_ADDRESSES]
    steps = [Step(UNDERLAY, ("link set lo up", *own, *outwards))]
    steps += [Step(UNDERLAY, tuple(no_return(topology, family)), family) for family in Family]
    for node in topology.nodes:
        steps.append(Step(node.name, (*uplink(node, subnets=True), *inwards(node, namespace_of))))
    steps += [Step(host.name, tuple(uplink(host))) for host in topology.outside]
    steps += [Step(pod.name, tuple(pod_side(node, pod))) for node in topology.nodes for pod in node.pods]
    return [step for step in steps if step.lines]


def underlay_side(host: Node | Outside, namespace_of: NamespaceOf) -> Iterator[str]:
    """Yields the commands for the underlay's link to one host, and its routes to everything behind it."""
    yield f"link add {host.name} type veth peer name eth0 netns {namespace_of(host.name)}"
    yield f"link set {host.name} up"
    yield f"addr add {ROUTER[Family.IPV4]}/32 dev {host.name} scope link"
    yield f"addr add {ROUTER[Family.IPV6]}/64 dev {host.name} nodad"
    for address in host.addresses:
        yield f"route add {host_prefix(address)} dev {host.name}"
    if isinstance(host, Node):
        for pod in host.pods:
            yield from underlay_route(host, pod)
        for prefix in host.attracts:
            yield f"route add {prefix} via {first_of(family_of(prefix), host.addresses)} dev {host.name} onlink"


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


def uplink(host: Node | Outside, *, subnets: bool = False) -> Iterator[str]:
    """Yields the commands for a host's own end: addresses and default routes.

    Nodes have their addresses with a /24 or /64, as real ones do, but without the route to that network.
    """
    yield "link set lo up"
    yield "link set eth0 up"
    for address in host.addresses:
        shown = f"{with_length(address)} dev eth0 noprefixroute" if subnets else f"{host_prefix(address)} dev eth0"
        yield f"addr add {shown}{nodad(address)}"
    for family in families(host.addresses):
        yield f"route add default via {ROUTER[family]} dev eth0 onlink"
