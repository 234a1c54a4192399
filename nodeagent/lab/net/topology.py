"""The members of a world: nodes with pods behind them, and hosts outside, around one router (the underlay).

Every host has exactly the given addresses, and the underlay translates none: what a server sees as its peer is the
result of the node under test.
"""

from collections import Counter

from msgspec import Struct

from nodeagent.model.addresses import Family, family_of, parse_address

UNDERLAY = "underlay"
MAX_NAME = 15

POD_BRIDGE = "cni0"
"""The usual bridge of pods, named as by flannel and the `bridge` plugin."""
NO_BRIDGE = ""
"""Instead of a bridge: each pod has its own link."""


class Pod(Struct, frozen=True):
    """A pod. `addresses`: any number, of either family; it sends from the first one of each family."""

    name: str
    addresses: tuple[str, ...]


class Node(Struct, frozen=True):
    """A node: `addresses` on its uplink; it sends from, and masquerades to, the first of each family.

    pod_gateways: the node's address on each pod's link, or on the bridge; at most one per family. attracts: prefixes
    that the underlay routes to this node although no interface has them: service CIDRs, load-balancer addresses. A
    packet to them *from* the node is unreachable, to avoid a loop. pod_cidrs: the ranges of all its pods, for underlays
    that route by range (bridge_wiring). pod_bridge: the bridge of its pods; empty: each has its own link (pod_wiring).
    """

    name: str
    addresses: tuple[str, ...]
    pod_gateways: tuple[str, ...] = ()
    pods: tuple[Pod, ...] = ()
    attracts: tuple[str, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    pod_bridge: str = NO_BRIDGE


class OutsideHost(Struct, frozen=True):
    """A host that is not part of the cluster."""

    name: str
    addresses: tuple[str, ...]


class Topology(Struct, frozen=True):
    """A whole world; `check` validates it."""

    nodes: tuple[Node, ...]
    outside: tuple[OutsideHost, ...] = ()

    @property
    def members(self) -> tuple[Node | OutsideHost | Pod, ...]:
        """All members: nodes, hosts outside, pods."""
        return (*self.nodes, *self.outside, *(pod for node in self.nodes for pod in node.pods))

    @property
    def addresses(self) -> dict[str, tuple[str, ...]]:
        """Addresses by member name."""
        return {member.name: member.addresses for member in self.members}

    def check(self) -> None:
        """Raises ValueError for the first thing that cannot be built."""
        for name, times in Counter(member.name for member in self.members).items():
            if times > 1 or name == UNDERLAY:
                raise ValueError(f"two members are called {name!r}")
            check_name(name)
        for address in (address for member in self.members for address in member.addresses):
            if parse_address(address) != address:
                raise ValueError(f"{address!r} is not a canonical address")
        for node in self.nodes:
            for pod in node.pods:
                check_pod(node, pod)


def check_name(name: str) -> None:
    """Raises ValueError unless the member's name can also be an interface name (15 bytes, IFNAMSIZ in linux/if.h)."""
    if not 0 < len(name) <= MAX_NAME or not name.replace("-", "").isalnum() or name in ("lo", "eth0"):
        raise ValueError(f"{name!r} cannot be an interface name: letters, digits and dashes, at most {MAX_NAME}")


def check_pod(node: Node, pod: Pod) -> None:
    """Raises ValueError if the node lacks a pod gateway or an address in a family of the pod."""
    for family in {family_of(address) for address in pod.addresses}:
        if first_of(family, node.pod_gateways) is None or first_of(family, node.addresses) is None:
            raise ValueError(f"{node.name} needs a pod gateway and an address for {family.value} of {pod.name}")


def first_of(family: Family, addresses: tuple[str, ...]) -> str | None:
    """Returns the first address in `family`, or None."""
    return next((address for address in addresses if family_of(address) is family), None)
