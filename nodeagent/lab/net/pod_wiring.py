"""How pods are joined to their node, as `ip` commands for both ends. Pure text.

There are two kinds, as network plugins have them. Ports of one bridge with the gateway address (`Node.pod_bridge`):
flannel, and the `bridge` plugin with hairpinMode; packets between two such pods pass the rules of IP through
br_netfilter. Or a link and a host route for each pod: Calico, and the `ptp` plugin.
"""

from collections.abc import Callable, Iterator

from nodeagent.lab.net.prefixes import families, host_prefix, is_within, nodad, with_length
from nodeagent.lab.net.topology import Node, Pod, first_of
from nodeagent.model.addresses import pack_address

NamespaceOf = Callable[[str], str]
"""Returns the namespace's name for a member's name."""

BRIDGE_HARDWARE_ADDRESS = "02:00:00:00:00:01"
"""Fixed; otherwise the bridge takes the lowest address of its ports and changes it with them."""

BRIDGE_SETTINGS = {"net/bridge/bridge-nf-call-iptables": "1", "net/bridge/bridge-nf-call-ip6tables": "1"}
"""For nodes with a bridge of pods, as kubeadm requires. Only if br_netfilter is loaded."""


def node_ends(node: Node, namespace_of: NamespaceOf) -> Iterator[str]:
    """Yields the commands for the node's ends of all its pods' links."""
    if node.pod_bridge:
        yield from bridge(node)
    for pod in node.pods:
        yield from node_side(node, pod, namespace_of(pod.name))


def bridge(node: Node) -> Iterator[str]:
    """Yields the commands for the bridge of a node's pods, with the gateway addresses."""
    yield f"link add {node.pod_bridge} address {BRIDGE_HARDWARE_ADDRESS} type bridge mcast_snooping 0"
    yield f"link set {node.pod_bridge} up"
    for gateway in node.pod_gateways:
        yield f"addr add {with_length(gateway)} dev {node.pod_bridge}{nodad(gateway)}"


def node_side(node: Node, pod: Pod, namespace: str) -> Iterator[str]:
    """Yields the commands for the node's end of one pod's link."""
    if node.pod_bridge:
        yield f"link add {pod.name} type veth peer name eth0 address {hardware_address(pod)} netns {namespace}"
        yield f"link set {pod.name} master {node.pod_bridge} up"
        yield f"link set {pod.name} type bridge_slave hairpin on"
    else:
        yield f"link add {pod.name} type veth peer name eth0 netns {namespace}"
        yield f"link set {pod.name} up"
        for family in families(pod.addresses):
            gateway = first_of(family, node.pod_gateways) or ""
            yield f"addr add {host_prefix(gateway)} dev {pod.name}{nodad(gateway)}"
    for address in pod.addresses:
        if not is_neighbour(node, address):
            yield f"route add {host_prefix(address)} dev {node.pod_bridge or pod.name}"


def pod_side(node: Node, pod: Pod) -> Iterator[str]:
    """Yields the pod's end: its addresses, and the node as gateway, which neighbours on a bridge do not need."""
    yield "link set lo up"
    for address in pod.addresses:
        own = with_length(address) if is_neighbour(node, address) else host_prefix(address)
        yield f"addr add {own} dev eth0{nodad(address)}"
    yield "link set eth0 up"
    for family in families(pod.addresses):
        yield f"route add default via {first_of(family, node.pod_gateways)} dev eth0 onlink"


def hardware_address(pod: Pod) -> str:
    """Returns a hardware address made from the pod's first address, so that a pod that reuses an address is found at
    once. Plugins let their pods announce themselves instead."""
    return "0a:58:" + pack_address(pod.addresses[0])[-4:].hex(":")


def is_neighbour(node: Node, address: str) -> bool:
    """Returns whether an address belongs to the network of its node's bridge."""
    return bool(node.pod_bridge) and is_within(address, node.pod_gateways)
