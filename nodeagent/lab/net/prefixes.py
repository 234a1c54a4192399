"""Addresses with their prefix lengths, as `ip` takes them (pure)."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_interface

from nodeagent.model.addresses import Family, family_of

SUBNET = {Family.IPV4: 24, Family.IPV6: 64}
"""Prefix length of the networks in a world."""


def host_prefix(address: str) -> str:
    """Returns the address as a prefix for itself: /32 or /128."""
    return f"{address}/{family_of(address).address_length * 8}"


def with_length(address: str) -> str:
    """Returns the address with the length of its network's prefix: ``ADDRESS/24`` or ``ADDRESS/64``."""
    return f"{address}/{SUBNET[family_of(address)]}"


def is_within(address: str, networks_of: Iterable[str]) -> bool:
    """Returns whether an address is in the network of one of the others."""
    return any(ip_address(address) in ip_interface(with_length(other)).network for other in networks_of)


def nodad(address: str) -> str:
    """Returns the option that makes an IPv6 address usable at once; empty for IPv4."""
    return " nodad" if family_of(address) is Family.IPV6 else ""


def families(addresses: Iterable[str]) -> list[Family]:
    """Returns the families of the addresses, IPv4 first."""
    found = {family_of(address) for address in addresses}
    return [family for family in Family if family in found]
