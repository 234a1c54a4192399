"""Computes from the Node, the service CIDRs and the configuration what the dataplane and the translation must know of this node.

docs/semantics.md 6-8, 50.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

from nodeagent.model.addresses import Family, family_of, parse_address, parse_network
from nodeagent.model.frontend import NodeState
from nodeagent.model.in_use import InUse, describe_overlap
from nodeagent.model.objects import LABEL_ZONE, Node, ServiceCIDR
from nodeagent.model.problem import Problem
from nodeagent.model.protected import Protected
from nodeagent.proxy.translate.cidrs import Network, merge_cidrs, network_family, parse_cidrs
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.node_ports import node_port_cidrs
from nodeagent.proxy.translate.protection import protection

_UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


class DetectLocal(Enum):
    """How packets from pods are recognised; the values are those of `detectLocalMode`."""

    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationOptions:
    """The part of the configuration that affects translation.

    node_name: the Node's name.
    families: the families this node serves.
    bind_address: used instead of the Node's primary address, unless it is empty or unspecified.
    detect_local: how pods are recognised.
    cluster_cidrs: the pod networks of the cluster (DetectLocal.CLUSTER_CIDR); the first of each family counts.
    node_port_addresses: CIDRs, or ``primary`` or ``all`` alone; empty is ``primary``.
    external_ips_enabled: whether `spec.externalIPs` are captured.
    protected_ports: no address of the node and no node port is captured at these; if empty, all may be.
    """

    node_name: str
    families: tuple[Family, ...] = (Family.IPV4, Family.IPV6)
    bind_address: str = ""
    detect_local: DetectLocal = DetectLocal.CLUSTER_CIDR
    cluster_cidrs: tuple[str, ...] = ()
    node_port_addresses: tuple[str, ...] = ()
    external_ips_enabled: bool = True
    protected_ports: tuple[int, ...] = ()


def node_context(
    node: Node | None,
    options: TranslationOptions,
    previous: Context | None = None,
    protected: Protected = Protected(),  # noqa: B008 - frozen
) -> Context:
    """Returns the context of the translation. protected: what the node needs, besides the Node's addresses.

    Without a Node (deleted, or not received yet) the previous values stay; a Node without addresses keeps the previous ones.
    """
    known = previous.node_addresses if previous else ()
    zone = previous.zone if previous else None
    if node is not None:
        zone = (node.metadata.labels or {}).get(LABEL_ZONE)
        known = _addresses_of(node) or known
    addresses = _node_addresses(known, options)
    interfaces = options.detect_local in (DetectLocal.BRIDGE_INTERFACE, DetectLocal.INTERFACE_NAME_PREFIX)
    by_cidr = options.detect_local is DetectLocal.NODE_CIDR or bool(options.cluster_cidrs)
    return Context(
        node_name=options.node_name,
        zone=zone or None,
        families=options.families,
        node_addresses=addresses,
        detects_pods=interfaces or by_cidr,
        external_ips_enabled=options.external_ips_enabled,
        protection=protection(protected, addresses, options.protected_ports),
    )


def node_state(
    node: Node | None,
    service_cidrs: Collection[ServiceCIDR],
    options: TranslationOptions,
    context: Context,
    previous: NodeState | None = None,
    *,
    in_use: frozenset[InUse] = frozenset(),
) -> tuple[NodeState, tuple[Problem, ...]]:
    """Returns what the dataplane must know, and the problems of its sources (sorted).

    context: from `node_context` for the same node.
    previous: its pod CIDRs stay while there is no Node.
    in_use: networks that no service range may overlap, besides the Node's addresses and the pods.
    """
    problems: list[Problem] = []
    taken = in_use | _pods_in_use(node, options)
    state = NodeState(
        service_cidrs=merged_service_cidrs(service_cidrs, context, taken, problems),
        pod_cidrs=pod_cidrs(node, options, previous, problems),
        node_port_cidrs=node_port_cidrs(options.node_port_addresses, context, problems),
    )
    return state, tuple(sorted(set(problems)))


def merged_service_cidrs(
    objects: Collection[ServiceCIDR], context: Context, in_use: frozenset[InUse], problems: list[Problem]
) -> tuple[str, ...]:
    """Returns the union of all ServiceCIDRs.

    Packets to addresses in them that no service has are dropped. So a range that contains the node's own address, or another
    address in use, would cut the node off; such a range is refused.
    """
    networks: list[Network] = []
    own = [ip_address(address) for address in context.node_addresses]
    for item in objects:
        subject = f"ServiceCIDR {item.metadata.name}"
        for network in parse_cidrs(item.spec.cidrs or (), subject, "CIDR", problems):
            if any(address in network for address in own):
                detail = f"{network} contains an address of this node: its unused addresses are not dropped"
                problems.append(Problem(subject, "NodeAddressInServiceCIDR", detail))
            elif what := describe_overlap(network, in_use):
                detail = (
                    f"{network} overlaps with {what}: it is not used as a service range, and its unused "
                    "addresses are not dropped"
                )
                problems.append(Problem(subject, "ServiceCIDROverlap", detail))
            elif network_family(network) in context.families:
                networks.append(network)
    return merge_cidrs(networks)


def pod_cidrs(
    node: Node | None, options: TranslationOptions, previous: NodeState | None, problems: list[Problem]
) -> tuple[str, ...]:
    """Returns the sources that count as pods: the first CIDR of each family; none in the interface modes."""
    if options.detect_local is DetectLocal.CLUSTER_CIDR:
        networks = parse_cidrs(options.cluster_cidrs, "configuration clusterCIDR", "CIDR", problems)
    elif options.detect_local is DetectLocal.NODE_CIDR:
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
    return merge_cidrs([network for family, network in first.items() if family in options.families])


def _pods_in_use(node: Node | None, options: TranslationOptions) -> frozenset[InUse]:
    """Returns the known pod networks, whether or not pods are recognised by them."""
    networks = map(parse_network, options.cluster_cidrs)
    found = {InUse(str(network), "pods: clusterCIDRs") for network in networks if network is not None}
    texts = (node.spec.pod_cidrs or (node.spec.pod_cidr or "",)) if node is not None else ()
    own = map(parse_network, texts)
    return frozenset(found | {InUse(str(network), "pods of this Node") for network in own if network is not None})


def _addresses_of(node: Node) -> tuple[str, ...]:
    """Returns the Node's usable addresses, internal before external."""
    entries = node.status.addresses if node.status and node.status.addresses else ()
    texts = [entry.address for kind in ("InternalIP", "ExternalIP") for entry in entries if entry.type == kind]
    return tuple([address for text in texts if (address := parse_address(text)) and address not in _UNSPECIFIED])


def _node_addresses(addresses: Sequence[str], options: TranslationOptions) -> tuple[str, ...]:
    """Returns the first address of each served family, the primary one first."""
    first: dict[Family, str] = {}
    bound = parse_address(options.bind_address)
    if bound and bound not in _UNSPECIFIED:
        first[family_of(bound)] = bound
    for address in addresses:
        first.setdefault(family_of(address), address)
    return tuple([address for family, address in first.items() if family in options.families])
