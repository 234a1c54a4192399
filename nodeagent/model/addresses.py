"""IP families, transport protocols and address text.

Addresses are passed through the program as canonical text (``str``): one spelling per address, so equality of text
is equality of address. Only the dataplane packs them into bytes.
"""

import socket
from collections.abc import Sequence
from enum import Enum, IntEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

LAST_PORT = 65535
"""The highest number of a TCP, UDP or SCTP port."""
_IPV4_BYTES = 4
_LARGEST_OCTET = 255
_LONGEST_OCTET = 16
"""Digits, with leading zeros; longer text is not a number that anybody meant."""
_LONGEST_ADDRESS = 64
_LONGEST_NETWORK = 80
"""With leading zeros. Longer texts are refused, so that the caches hold no long ones."""


class Family(Enum):
    """An IP address family; the value is the API's spelling (``EndpointSlice.addressType``)."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"

    __hash__ = object.__hash__  # in C; Enum's own hashes the name, in Python, at each look into a dict

    @property
    def address_length(self) -> int:
        """Bytes in a packed address."""
        return 4 if self is Family.IPV4 else 16

    @property
    def socket_family(self) -> int:
        """The kernel's number of the family (``AF_INET``, ``AF_INET6``)."""
        return socket.AF_INET if self is Family.IPV4 else socket.AF_INET6


class Protocol(IntEnum):
    """A transport protocol a service port can have; the value is the IP protocol number."""

    TCP = 6
    UDP = 17
    SCTP = 132


def parse_address(text: str) -> str | None:
    """Returns the canonical text of an IP address, or None if the text is not an address.

    Leading zeros in IPv4 are decimal (``172.30.0.041`` is ``.41``), as kube-proxy's tolerant parser reads them.
    An IPv6 address with a zone is refused; an IPv4-mapped IPv6 address becomes IPv4.
    """
    bare = text.strip()
    return _parse(bare) if len(bare) <= _LONGEST_ADDRESS else None


@lru_cache(maxsize=1 << 17)
def _parse(text: str) -> str | None:
    if ":" in text:
        try:
            packed = socket.inet_pton(socket.AF_INET6, text)
        except (OSError, ValueError):
            return None
        if packed[:12] == b"\0" * 10 + b"\xff\xff":
            return socket.inet_ntop(socket.AF_INET, packed[12:])
        return socket.inet_ntop(socket.AF_INET6, packed)
    try:
        socket.inet_pton(socket.AF_INET, text)
    except (OSError, ValueError):
        return _without_leading_zeros(text)
    return text


def _without_leading_zeros(text: str) -> str | None:
    """Returns the canonical text of an IPv4 address that `inet_pton` does not take."""
    parts = text.split(".")
    if len(parts) != _IPV4_BYTES:
        return None
    octets = []
    for part in parts:
        if not (len(part) < _LONGEST_OCTET and part.isascii() and part.isdigit() and int(part) <= _LARGEST_OCTET):
            return None
        octets.append(str(int(part)))
    return ".".join(octets)


def family_of(address: str) -> Family:
    """Returns the family of a canonical address or CIDR."""
    return Family.IPV6 if ":" in address else Family.IPV4


def endpoint_text(host: str, port: int) -> str:
    """Returns an address or a name and a port, as in URLs: ``192.0.2.1:80``, ``[2001:db8::1]:80``, ``api.example:6443``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def pack_address(address: str) -> bytes:
    """Returns the address in network byte order, 4 or 16 bytes.

    Raises OSError if `address` is not canonical text (a bug of the caller).
    """
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def pack_addresses(addresses: Sequence[str]) -> list[bytes]:
    """Does the same for addresses of one family, at least one."""
    family = family_of(addresses[0]).socket_family
    return [socket.inet_pton(family, address) for address in addresses]


def unpack_address(packed: bytes | memoryview) -> str:
    """Returns the canonical text of 4 or 16 packed bytes."""
    return socket.inet_ntop(socket.AF_INET if len(packed) == _IPV4_BYTES else socket.AF_INET6, packed)


def unpack_addresses(packed: Sequence[bytes]) -> list[str]:
    """Does the same for addresses of one family, at least one."""
    family = socket.AF_INET if len(packed[0]) == _IPV4_BYTES else socket.AF_INET6
    return [socket.inet_ntop(family, one) for one in packed]


def parse_network(text: str) -> IPv4Network | IPv6Network | None:
    """Returns a CIDR (host bits are cleared; a bare address is not a CIDR), or None if the text is not a CIDR."""
    bare = text.strip()
    return _parse_network(bare) if len(bare) <= _LONGEST_NETWORK else None


@lru_cache(1024)  # every pass asks for the same few
def _parse_network(text: str) -> IPv4Network | IPv6Network | None:
    address, slash, prefix = text.partition("/")
    canonical = parse_address(address)
    if canonical is None or not slash or not (prefix.isascii() and prefix.isdigit()):
        return None
    try:
        return ip_network(f"{canonical}/{int(prefix)}", strict=False)
    except ValueError:
        return None
