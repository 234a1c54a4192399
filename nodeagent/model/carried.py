"""Decides whether the service interface carries a ClusterIP itself or the service range that contains it (pure).

Each IPv6 route has an entry of its own in a binary tree (net/ipv6/ip6_fib.c), so the first packet of each of the node's connections
would pass as many entries as there are ClusterIPs. A range is one. A range is not local, so rules for everything that is addressed to
the node do not match packets to a Service, or to an unused address of the range.

The first addresses of a range stay local one by one: API servers reserve them for ClusterIPs that users choose
(KEP-3070); these are the ClusterIPs that a program of the node may bind.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import NamedTuple

from nodeagent.model.addresses import Family, family_of, pack_address

CHOSEN_BY_HAND = 256
"""At most (pkg/registry/core/service/ipallocator, calculateRangeOffset)."""
_SHORTEST_PREFIX = 64
"""That of a subnet (RFC 4291). A larger range is hardly meant, and a route to it would also divert existing connections."""


class CarriedRange(NamedTuple):
    """An IPv6 service range. text: as CIDR. first: its first address, which no Service has (Subnet-Router anycast, RFC 4291).

    low, high: the first and last address, as numbers, that are not local themselves.
    """

    text: str
    first: str
    low: int
    high: int


def carried_ranges(service_cidrs: Iterable[str]) -> tuple[CarriedRange, ...]:
    """Returns the ranges that are carried as a whole, in order: the IPv6 ones with more addresses than users may choose,
    and at most as many as a subnet. `service_cidrs` must not overlap."""
    networks = [ip_network(text) for text in service_cidrs if family_of(text) is Family.IPV6]
    ranges = [
        CarriedRange(
            str(network),
            str(network.network_address),
            int(network.network_address) + CHOSEN_BY_HAND,
            int(network.broadcast_address),
        )
        for network in networks
        if network.num_addresses > CHOSEN_BY_HAND and network.prefixlen >= _SHORTEST_PREFIX
    ]
    return tuple(sorted(ranges, key=_low))


def carried_by(cluster_ip: str, ranges: Sequence[CarriedRange]) -> tuple[str, ...]:
    """Returns what the interface carries for a ClusterIP: its address, or the range and its first address, which answers `ping`.

    ranges: from `carried_ranges`.
    """
    if ranges and family_of(cluster_ip) is Family.IPV6:
        number = int.from_bytes(pack_address(cluster_ip))
        before = bisect_right(ranges, number, key=_low)
        if before and number <= ranges[before - 1].high:
            return (ranges[before - 1].text, ranges[before - 1].first)
    return (cluster_ip,)


def _low(found: CarriedRange) -> int:
    return found.low
