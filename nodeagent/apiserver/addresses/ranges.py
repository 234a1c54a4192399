"""The addresses and ports that may be allocated, and the order in which they are tried. Pure (randomness is an argument).

The lower part of a range is left to clients that request a certain value, so that random picks rarely take it first (KEP-3070
for addresses, KEP-3668 for node ports).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Protocol, TypeAlias

from nodeagent.kinds.description.address_texts import BOTH_FAMILIES
from nodeagent.model.addresses import LAST_PORT

Network: TypeAlias = IPv4Network | IPv6Network

_SMALLEST = 8
_NUMBER = re.compile("[0-9]{1,6}")
_MOST_IPV6 = 1 << 16
_BAND_LEAST = 16


class Random(Protocol):
    """A source of random numbers."""

    def randrange(self, start: int, stop: int) -> int:
        """Returns a number from `start` up to, but not including, `stop`."""
        ...


class RangeRefused(ValueError):
    """The range cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The numbers 0 … size-1, of which the first `band` are picked last."""

    size: int
    band: int

    def candidates(self, random: Random) -> Iterator[int]:
        """Yields every number once: from a random start through the upper part, then likewise through the lower part."""
        for start, stop in ((self.band, self.size), (0, self.band)):
            if start < stop:
                first = random.randrange(start, stop)
                yield from range(first, stop)
                yield from range(start, first)


@dataclass(frozen=True, slots=True)
class AddressRange:
    """A service CIDR. Its network address is never allocated, nor an IPv4 broadcast address."""

    network: Network

    @property
    def family(self) -> str:
        """`IPv4` or `IPv6`."""
        return f"IPv{self.network.version}"

    @property
    def pool(self) -> Pool:
        """The numbers of its addresses: number n is the network's address n + 1."""
        size = self.network.num_addresses
        if isinstance(self.network, IPv6Network):
            size = min(size, _MOST_IPV6)
        usable = size - (2 if isinstance(self.network, IPv4Network) else 1)
        return Pool(usable, min(max(_BAND_LEAST, size // 16), 256) if size > _BAND_LEAST * 2 else 0)

    @property
    def first(self) -> str:
        """The first address, which the `kubernetes` Service has."""
        return self.address(0)

    def address(self, number: int) -> str:
        """Returns the address with that number."""
        return str(self.network.network_address + 1 + number)

    def holds(self, address: str) -> bool:
        """Returns whether the address may be allocated from this range."""
        parsed = ip_address(address)
        if parsed.version != self.network.version:
            return False
        return 0 < int(parsed) - int(self.network.network_address) <= self.pool.size


@dataclass(frozen=True, slots=True)
class PortRange:
    """The node ports `first` to `last`, both included."""

    first: int
    last: int

    @property
    def pool(self) -> Pool:
        """The numbers of its ports: number n is port first + n."""
        size = self.last - self.first + 1
        return Pool(size, min(max(_BAND_LEAST, size // 32), 128) if size > _BAND_LEAST * 2 else 0)

    def holds(self, port: int) -> bool:
        """Returns whether the port may be allocated."""
        return self.first <= port <= self.last


def parse_port_range(text: str) -> PortRange:
    """Parses a range such as `30000-32767`. Raises RangeRefused."""
    first, dash, last = text.partition("-")
    if not dash or not all(_NUMBER.fullmatch(end.strip()) for end in (first, last)):
        raise RangeRefused(f"{text!r} is not a port range such as 30000-32767")
    found = PortRange(int(first), int(last))
    if not 1 <= found.first <= found.last <= LAST_PORT:
        raise RangeRefused(f"port range {text} must lie within 1-65535, the smaller end first")
    return found


def parse_service_ranges(text: str, taken: Sequence[tuple[str, str]] = ()) -> tuple[AddressRange, ...]:
    """Parses one range, or two of different families joined by a comma; the first is the primary one.

    `taken`: (description, CIDR) pairs that the ranges may not overlap. Raises RangeRefused.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not 1 <= len(parts) <= BOTH_FAMILIES:
        raise RangeRefused("--service-cluster-ip-range takes one range, or two of different IP families")
    ranges = tuple(AddressRange(_network(part)) for part in parts)
    if len({found.family for found in ranges}) != len(ranges):
        raise RangeRefused(f"service ranges {text} are of the same IP family")
    for found in ranges:
        _check(found.network, taken)
    return ranges


def _network(text: str) -> Network:
    try:
        return ip_network(text, strict=True)
    except ValueError as error:
        raise RangeRefused(f"{text!r} is not a CIDR: {error}") from None


def _check(network: Network, taken: Sequence[tuple[str, str]]) -> None:
    if network.num_addresses < _SMALLEST:
        raise RangeRefused(
            f"service range {network} has {network.num_addresses} addresses; at least {_SMALLEST} are needed"
        )
    for why in ("loopback", "link_local", "multicast"):
        if getattr(network, f"is_{why}"):
            raise RangeRefused(f"service range {network} is {why.replace('_', '-')}")
    for what, text in taken:
        other = _network(text)
        if other.version == network.version and network.overlaps(other):
            raise RangeRefused(f"service range {network} overlaps the {what} {other}")
