"""Addresses and networks as API objects write them. Pure."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

BOTH_FAMILIES: Final = 2
"""So many addresses or ranges there are of something that has one of each family."""
_LONGEST: Final = 64
"""Characters: more than an address with a zone has."""
_LENGTH: Final = re.compile("0|[1-9][0-9]{0,2}")


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """An address without zone, or None; an IPv4 address written as IPv6 (`::ffff:192.0.2.1`) gives None, too."""
    if len(text) > _LONGEST:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and (address.scope_id or address.ipv4_mapped):
        return None
    return address


def parse_cidr(text: str) -> IPv4Network | IPv6Network | None:
    """A network by the length of its prefix, or None; host bits are allowed and cleared, IPv4 written as IPv6 gives None."""
    address, _, length = text.rpartition("/")
    if parse_ip(address) is None or not _LENGTH.fullmatch(length):
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
