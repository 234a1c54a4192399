"""Decides which sources may connect to a load-balancer address (docs/semantics.md §8, docs/decisions/0010-source-ranges.md)."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import ServiceSpec
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.cidrs import Network, merge_cidrs, network_family, parse_cidrs
from nodeagent.proxy.translate.context import Context


def source_ranges(spec: ServiceSpec, key: ObjectKey, problems: list[Problem]) -> list[Network] | None:
    """Returns the valid `loadBalancerSourceRanges` of both families; None if the Service lists none."""
    texts = [text for text in spec.load_balancer_source_ranges or () if text.strip()]
    if not texts:
        return None
    return parse_cidrs(texts, f"Service {key}", "source range", problems)


def allowed_sources(
    ranges: list[Network] | None,
    family: Family,
    load_balancer_ips: Sequence[str],
    key: ObjectKey,
    context: Context,
    problems: list[Problem],
) -> tuple[str, ...] | None:
    """Returns the CIDRs that may connect to `load_balancer_ips`, merged and sorted; None: every source may.

    If no range of a family is left in the list, that family is open, as with kube-proxy; it is reported as ``SourceRangesIneffective``.
    """
    if ranges is None or not load_balancer_ips:
        return None
    own = [network for network in ranges if network_family(network) is family]
    if not own:
        detail = f"no valid {family.value} source range: {', '.join(load_balancer_ips)} is open to every source"
        problems.append(Problem(f"Service {key}", "SourceRangesIneffective", detail))
        return None
    if _contains_node(own, family, context):
        own += [ip_network(address) for address in load_balancer_ips]
    sources = merge_cidrs(own)
    return None if len(sources) == 1 and sources[0].endswith("/0") else sources


def _contains_node(networks: Sequence[Network], family: Family, context: Context) -> bool:
    """Returns whether this node may connect.

    Its own connections may carry a load-balancer address as their source if that address is bound on the node.
    """
    addresses = [ip_address(address) for address in context.node_addresses if family_of(address) is family]
    return any(address in network for address in addresses for network in networks)
