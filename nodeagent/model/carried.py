"""By what the service interface carries a ClusterIP: by itself, or by the service range that it is in (pure).

Each IPv6 route has an entry of its own in a binary tree (net/ipv6/ip6_fib.c), so the first packet of each of the node's connections
would walk through as many as there are ClusterIPs. A range is one. It is not local, so what takes everything that is addressed to
the node does not take what is addressed to a Service, or to an address of the range that none has.

The first addresses of a range stay local one by one: API servers keep them for ClusterIPs that are chosen by hand
(KEP-3070), which are those that a program of the node may bind.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import NamedTuple

from nodeagent.model.addresses import Family, family_of, pack_address

CHOSEN_BY_HAND = 256
"""How many at most (pkg/registry/core/service/ipallocator, calculateRangeOffset)."""
_SHORTEST_PREFIX = 64
"""Of a subnet (RFC 4291). More than that is hardly meant, and a route to it would lead existing connections astray, too."""


class CarriedRange(NamedTuple):
    """An IPv6 service range. text: as CIDR. first: its first address, which no Service has (Subnet-Router anycast, RFC 4291).

    low, high: the numbers of its first and last address that is not local by itself.
    """

    text: str
    first: str
    low: int
    high: int


def carried_ranges(service_cidrs: Iterable[str]) -> tuple[CarriedRange, ...]:
    """The ranges by which ClusterIPs are carried, in order: the IPv6 ones with more addresses than are chosen by hand, and no more than a
    subnet has. The caller gives none that overlap."""
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
    """What the interface carries for a ClusterIP: its address, or the range and its first address, which answers `ping`.

    ranges: as from `carried_ranges`."""
    if ranges and family_of(cluster_ip) is Family.IPV6:
        number = int.from_bytes(pack_address(cluster_ip))
        before = bisect_right(ranges, number, key=_low)
        if before and number <= ranges[before - 1].high:
            return (ranges[before - 1].text, ranges[before - 1].first)
    return (cluster_ip,)


def _low(found: CarriedRange) -> int:
    return found.low
