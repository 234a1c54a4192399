"""Addresses that stand for something already, so that no range of ClusterIPs may contain them."""

from collections.abc import Collection, Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from msgspec import Struct

Network = IPv4Network | IPv6Network
_SHOWN = 3


class InUse(Struct, frozen=True, order=True):
    """A CIDR (canonical text) and what has it, as a person reads it: ``an address of this node (eth0)``."""

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
"""What no network may use for hosts of its own: RFC 6890, RFC 4291."""


def host(address: str, what: str) -> InUse:
    """One address (canonical text)."""
    return InUse(str(ip_network(address)), what)


def describe_overlap(network: Network, in_use: Iterable[InUse]) -> str:
    """What overlaps with `network`, the special addresses included, for a person; empty when nothing does."""
    found = _overlapping(network, frozenset(in_use))
    texts = [f"{one.cidr} ({one.what})" for one in found[:_SHOWN]]
    return ", ".join(texts) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


@lru_cache(maxsize=256)
def _overlapping(network: Network, in_use: Collection[InUse]) -> tuple[InUse, ...]:
    return tuple(sorted(one for one in {*SPECIAL, *in_use} if network.overlaps(_network(one.cidr))))


@lru_cache(maxsize=1 << 14)
def _network(cidr: str) -> Network:
    return ip_network(cidr)
