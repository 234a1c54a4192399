"""Addresses that are in use already, so that no range of ClusterIPs may contain them."""

from collections.abc import Collection, Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from msgspec import Struct

Network = IPv4Network | IPv6Network
_SHOWN = 3


class InUse(Struct, frozen=True, order=True):
    """A CIDR (canonical text) and its holder, as text for users: ``an address of this node (eth0)``."""

    cidr: str
    what: str


SPECIAL = frozenset(
    InUse(cidr, what)
    for cidr, what in (
        ("0.0.0.0/32", "the unspecified address"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("::/128", "the unspecified address"),
        ("::1/128", "loopback"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
    )
)
"""Ranges that no network may use for its own hosts: RFC 6890, RFC 4291."""


def host(address: str, what: str) -> InUse:
    """Returns one address (canonical text) as InUse."""
    return InUse(str(ip_network(address)), what)


def describe_overlap(network: Network, in_use: Iterable[InUse]) -> str:
    """Returns what overlaps with `network`, the special addresses included, as text for users; empty if nothing does."""
    found = _overlapping(network, frozenset(in_use))
    texts = [f"{one.cidr} ({one.what})" for one in found[:_SHOWN]]
    return ", ".join(texts) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


@lru_cache(maxsize=256)
def _overlapping(network: Network, in_use: Collection[InUse]) -> tuple[InUse, ...]:
    return tuple(sorted(one for one in {*SPECIAL, *in_use} if network.overlaps(_network(one.cidr))))


@lru_cache(maxsize=1 << 14)
def _network(cidr: str) -> Network:
    return ip_network(cidr)
