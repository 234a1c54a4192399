"""Which clients are served: pods and the node, and more ranges if configured. Pure."""

from collections.abc import Collection, Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

PRIVATE = {
    4: ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    6: ("fc00::/7", "fe80::/10"),
}
"""Private addresses by IP version (RFC 1918, 6598, 3927, 4193, 4291)."""


def served_ranges(clients: Collection[str], pods: Collection[str]) -> tuple[str, ...]:
    """Returns the ranges whose queries are answered. clients: configured ranges. pods: ranges where pods are known to
    be.

    If both are empty for an IP family, its pods may be anywhere: then all private addresses are served, and no public
    ones.
    """
    given = (*clients, *pods)
    versions = {ip_network(one).version for one in given}
    guessed = (one for version, ranges in PRIVATE.items() if version not in versions for one in ranges)
    return tuple(dict.fromkeys((*given, *guessed)))


def is_allowed(client: str, pod_ranges: Iterable[IPv4Network | IPv6Network], node_addresses: Collection[str]) -> bool:
    """Returns whether a client is served. client: as the socket gives it, an IPv6 address perhaps with its zone.
    node_addresses: in canonical text.
    Loopback addresses are the node's, and a mapped IPv4 address is that IPv4 address. Invalid text is not served."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or str(address) in node_addresses or any(address in pods for pods in pod_ranges)
