"""Who is served: pods and the node, unless more ranges are given. Pure."""

from collections.abc import Collection, Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address


def is_allowed(client: str, pod_ranges: Iterable[IPv4Network | IPv6Network], node_addresses: Collection[str]) -> bool:
    """client: as the socket says it, an IPv6 address perhaps with its zone. node_addresses: in canonical text.

    Loopback addresses are the node's, and a mapped IPv4 address is that address. Text that is no address is nobody.
    """
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or str(address) in node_addresses or any(address in pods for pods in pod_ranges)
