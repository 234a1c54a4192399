"""The Node, the service CIDRs and the configuration become what the dataplane and the translation know of this node.

SEMANTICS 6-8, 41, 50; docs/decisions/0012-nodeport-addresses.md for what node ports listen on.
"""

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeVar

from msgspec import Struct

from nodeagent.model.addresses import Family, family_of, parse_address
from nodeagent.model.frontend import NodeState
from nodeagent.model.objects import LABEL_ZONE, Node, ServiceCIDR
from nodeagent.model.problem import Problem
from nodeagent.translate.cidrs import Network, merged, network_family, parse_cidrs
from nodeagent.translate.context import Context

_EVERYTHING: dict[Family, Network] = {Family.IPV4: IPv4Network("0.0.0.0/0"), Family.IPV6: IPv6Network("::/0")}
_UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
_N = TypeVar("_N", IPv4Network, IPv6Network)


class DetectLocal(Enum):
    """How a packet is recognised as a pod's; the values are those of `detectLocalMode`."""

    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


class NodeSettings(Struct, frozen=True, kw_only=True):
    """What the configuration says about this node.

    node_name: the Node's name.
    families: the families this node serves.
    bind_address: takes the place of the Node's primary address; empty or unspecified: does not.
    detect_local: how pods are recognised.
    cluster_cidrs: the pod networks of the cluster (DetectLocal.CLUSTER_CIDR); the first of each family counts.
    node_port_addresses: CIDRs, or ``primary`` or ``all`` alone; empty is ``primary``.
    external_ips_enabled: whether `spec.externalIPs` are captured.
    """

    node_name: str
    families: tuple[Family, ...] = (Family.IPV4, Family.IPV6)
    bind_address: str = ""
    detect_local: DetectLocal = DetectLocal.CLUSTER_CIDR
    cluster_cidrs: tuple[str, ...] = ()
    node_port_addresses: tuple[str, ...] = ()
    external_ips_enabled: bool = True


def node_context(node: Node | None, settings: NodeSettings, previous: Context | None = None) -> Context:
    """The context of the translation. Without a Node (deleted, not seen yet) what was known before stays true."""
    if node is None:
        zone = previous.zone if previous else None
        addresses = previous.node_addresses if previous else _node_addresses((), settings)
    else:
        zone = (node.metadata.labels or {}).get(LABEL_ZONE)
        addresses = _node_addresses(_addresses_of(node), settings)
    interfaces = settings.detect_local in (DetectLocal.BRIDGE_INTERFACE, DetectLocal.INTERFACE_NAME_PREFIX)
    by_cidr = settings.detect_local is DetectLocal.NODE_CIDR or bool(settings.cluster_cidrs)
    return Context(
        node_name=settings.node_name,
        zone=zone or None,
        families=settings.families,
        node_addresses=addresses,
        detects_pods=interfaces or by_cidr,
        external_ips_enabled=settings.external_ips_enabled,
    )


def node_state(
    node: Node | None,
    service_cidrs: Collection[ServiceCIDR],
    settings: NodeSettings,
    context: Context,
    previous: NodeState | None = None,
) -> tuple[NodeState, tuple[Problem, ...]]:
    """What the dataplane must know, and what is wrong with its sources (sorted).

    `context`: from `node_context` for the same node. `previous`: its pod CIDRs stay while the Node is gone.
    """
    problems: list[Problem] = []
    state = NodeState(
        service_cidrs=merged_service_cidrs(service_cidrs, context, problems),
        pod_cidrs=pod_cidrs(node, settings, previous, problems),
        node_port_cidrs=node_port_cidrs(settings.node_port_addresses, context, problems),
    )
    return state, tuple(sorted(set(problems)))


def merged_service_cidrs(
    objects: Collection[ServiceCIDR], context: Context, problems: list[Problem]
) -> tuple[str, ...]:
    """The union of all ServiceCIDRs.

    Addresses in them that no service has are dropped, so a range that holds this node's own address would cut it
    off; such a range is refused.
    """
    networks: list[Network] = []
    own = [ip_address(address) for address in context.node_addresses]
    for item in objects:
        subject = f"ServiceCIDR {item.metadata.name}"
        for network in parse_cidrs(item.spec.cidrs or (), subject, "CIDR", problems):
            if any(address in network for address in own):
                detail = f"{network} contains an address of this node: its unused addresses are not dropped"
                problems.append(Problem(subject, "NodeAddressInServiceCIDR", detail))
            elif network_family(network) in context.families:
                networks.append(network)
    return merged(networks)


def pod_cidrs(
    node: Node | None, settings: NodeSettings, previous: NodeState | None, problems: list[Problem]
) -> tuple[str, ...]:
    """The sources that count as pods: the first CIDR of each family; none in the interface modes."""
    if settings.detect_local is DetectLocal.CLUSTER_CIDR:
        networks = parse_cidrs(settings.cluster_cidrs, "configuration clusterCIDR", "CIDR", problems)
    elif settings.detect_local is DetectLocal.NODE_CIDR:
        if node is None:
            return previous.pod_cidrs if previous else ()
        subject = f"Node {node.metadata.name}"
        texts = node.spec.pod_cidrs or ((node.spec.pod_cidr,) if node.spec.pod_cidr else ())
        networks = parse_cidrs(texts, subject, "pod CIDR", problems)
        if not networks:
            problems.append(Problem(subject, "NoPodCIDR", "no pod CIDR assigned: no source counts as a pod"))
    else:
        return ()
    first: dict[Family, Network] = {}
    for network in networks:
        first.setdefault(network_family(network), network)
    return merged([network for family, network in first.items() if family in settings.families])


def node_port_cidrs(texts: Sequence[str], context: Context, problems: list[Problem]) -> tuple[str, ...]:
    """The destinations at which node ports answer, never loopback.

    ``primary``: the node's addresses; a family without one gets none. CIDRs: those; a family that is not mentioned
    gets all its addresses, as upstream has it.
    """
    subject = "configuration nodePortAddresses"
    keywords = {text.strip() for text in texts if text.strip()}
    if not keywords or keywords == {"primary"}:
        known = {family_of(address) for address in context.node_addresses}
        for family in context.families:
            if family not in known:
                detail = f"the node has no {family.value} address: node ports do not answer on {family.value}"
                problems.append(Problem(subject, "NoNodeAddress", detail))
        networks = [ip_network(address) for address in context.node_addresses]
        return merged([network for network in networks if network_family(network) in context.families])
    given = parse_cidrs([text for text in texts if text.strip() != "all"], subject, "entry", problems)
    chosen: list[Network] = []
    for family in context.families:
        own = [network for network in given if network_family(network) is family]
        if "all" in keywords or not own:
            own = [_EVERYTHING[family]]
        chosen += [part for network in own for part in _without_loopback(network)]
    return merged(chosen)


def _without_loopback(network: Network) -> Iterable[Network]:
    if isinstance(network, IPv4Network):
        return _excluding(network, IPv4Network("127.0.0.0/8"))
    return _excluding(network, IPv6Network("::1/128"))


def _excluding(network: _N, hole: _N) -> Iterable[_N]:
    if network.subnet_of(hole):
        return ()
    return network.address_exclude(hole) if hole.subnet_of(network) else (network,)


def _addresses_of(node: Node) -> list[str]:
    """The Node's usable addresses, internal before external."""
    entries = node.status.addresses if node.status and node.status.addresses else ()
    texts = [entry.address for kind in ("InternalIP", "ExternalIP") for entry in entries if entry.type == kind]
    return [address for text in texts if (address := parse_address(text)) and address not in _UNSPECIFIED]


def _node_addresses(addresses: Sequence[str], settings: NodeSettings) -> tuple[str, ...]:
    """The first address of each served family, the primary one first."""
    first: dict[Family, str] = {}
    bound = parse_address(settings.bind_address)
    if bound and bound not in _UNSPECIFIED:
        first[family_of(bound)] = bound
    for address in addresses:
        first.setdefault(family_of(address), address)
    return tuple([address for family, address in first.items() if family in settings.families])
