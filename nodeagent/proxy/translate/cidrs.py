"""Lists of CIDRs in the form that the kernel's interval sets accept: canonical, sorted, no two overlapping."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses

from nodeagent.model.addresses import Family, parse_network
from nodeagent.model.problem import Problem

Network = IPv4Network | IPv6Network


def parse_cidrs(texts: Iterable[str], subject: str, what: str, problems: list[Problem]) -> list[Network]:
    """Returns the valid CIDRs among `texts`. Skips blank ones silently; appends an ``InvalidCIDR`` problem for each other one."""
    networks: list[Network] = []
    for text in texts:
        network = parse_network(text)
        if network is not None:
            networks.append(network)
        elif text.strip():
            problems.append(Problem(subject, "InvalidCIDR", f"{what} {text.strip()!r} is not a CIDR: ignored"))
    return networks


def network_family(network: Network) -> Family:
    """Returns the family of a network."""
    return Family.IPV4 if isinstance(network, IPv4Network) else Family.IPV6


def merge_cidrs(networks: Iterable[Network]) -> tuple[str, ...]:
    """Returns the same addresses in the fewest CIDRs: IPv4 before IPv6, sorted, non-overlapping, canonical text.

    The kernel refuses overlapping intervals (EEXIST), but accepts some of them silently in concatenated sets.
    """
    ipv4: list[IPv4Network] = []
    ipv6: list[IPv6Network] = []
    for network in networks:
        if isinstance(network, IPv4Network):
            ipv4.append(network)
        else:
            ipv6.append(network)
    return (*map(str, collapse_addresses(ipv4)), *map(str, collapse_addresses(ipv6)))
