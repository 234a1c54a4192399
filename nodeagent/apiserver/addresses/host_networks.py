"""The networks of this machine, read from /proc: service ranges must not overlap them."""

from ipaddress import IPv4Address, ip_network
from pathlib import Path


def connected_networks(proc: Path = Path("/proc/net")) -> list[str]:
    """Returns the CIDRs of the main table's routes without a gateway, and of IPv6 addresses with a prefix length below 128.

    The addresses of Services, which an agent adds to this machine one by one, are not included. Unreadable files count as
    empty.
    """
    return sorted({*_ipv4(_lines(proc / "route")), *_ipv6(_lines(proc / "if_inet6"))})


_DESTINATION, _GATEWAY, _MASK = 1, 2, 7
"""Columns of /proc/net/route."""
_LENGTH, _SCOPE = 2, 3
"""Columns of /proc/net/if_inet6."""


def _lines(path: Path) -> list[list[str]]:
    try:
        return [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return []


def _ipv4(lines: list[list[str]]) -> list[str]:
    found = []
    for words in lines[1:]:
        if len(words) <= _MASK or words[_GATEWAY] != "00000000" or words[_MASK] == "00000000":
            continue
        # The kernel prints the bytes of network order as a little-endian number.
        address, mask = (IPv4Address(bytes.fromhex(word)[::-1]) for word in (words[_DESTINATION], words[_MASK]))
        found.append(str(ip_network(f"{address}/{mask}", strict=False)))
    return found


def _ipv6(lines: list[list[str]]) -> list[str]:
    found = []
    for words in lines:
        if len(words) > _SCOPE and words[_SCOPE] == "00" and words[_LENGTH] != "80":
            text = ":".join(words[0][i : i + 4] for i in range(0, 32, 4))
            found.append(str(ip_network(f"{text}/{int(words[_LENGTH], 16)}", strict=False)))
    return found
