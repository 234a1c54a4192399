"""Parses addresses and networks in API objects. Pure."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

from nodeagent.model.addresses import pack_address

BOTH_FAMILIES: Final = 2
"""The number of addresses or ranges of an object with one of each family."""
_LONGEST: Final = 64
"""Characters; longer than any address with a zone."""
_LENGTH: Final = re.compile("0|[1-9][0-9]{0,2}")


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """Returns an address, or None if the text is not valid, has a zone, or is IPv4 written as IPv6 (`::ffff:192.0.2.1`)."""
    if len(text) > _LONGEST:
        return None
    try:
        if ":" not in text:  # the same texts as `ipaddress` takes, for less
            return IPv4Address(pack_address(text))
        address = IPv6Address(text)
    except (OSError, ValueError):
        return None
    return None if address.scope_id or address.ipv4_mapped else address


def parse_cidr(text: str) -> IPv4Network | IPv6Network | None:
    """Returns a network, or None if the text is not valid. Host bits are cleared. IPv4 written as IPv6 returns None."""
    address, _, length = text.rpartition("/")
    if parse_ip(address) is None or not _LENGTH.fullmatch(length):
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
