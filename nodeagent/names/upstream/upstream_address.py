"""The address of an upstream resolver, and how it is written. Pure."""

from collections.abc import Collection, Iterable
from ipaddress import ip_address
from typing import NamedTuple

from nodeagent.model.addresses import LAST_PORT, endpoint_text

DNS_PORT = 53
WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared, not bound


class Server(NamedTuple):
    """An address in canonical text (IPv6 perhaps with a zone), and a port for both UDP and TCP."""

    address: str
    port: int = DNS_PORT

    def __str__(self) -> str:
        return endpoint_text(self.address, self.port)


def parse_server(text: str) -> Server:
    """Parses `ADDR`, `ADDR:PORT`, `[ADDR]:PORT` or a bare IPv6 address. Raises ValueError with a text for the user."""
    text = text.strip()
    host, port = text, str(DNS_PORT)
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not [ADDR]:PORT")
        port = rest[1:] if rest else port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    address = canonical(host)
    if address is None:
        raise ValueError(f"{text!r} has no IP address")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) <= LAST_PORT:
        raise ValueError(f"{text!r} has no port between 1 and 65535")
    return Server(address, int(port))


def canonical(text: str) -> str | None:
    """Returns the one spelling of an address, mapped IPv4 as IPv4; None if `text` is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def without_own(
    servers: Iterable[Server], listening: Collection[Server], node_addresses: Collection[str] = ()
) -> tuple[Server, ...]:
    """Returns `servers` without our own addresses, in their order; a wildcard stands for every address of the node."""
    wild = {own.port for own in listening if own.address in WILDCARDS}
    return tuple(
        server
        for server in servers
        if server not in listening
        and not (server.port in wild and (is_loopback(server.address) or server.address in node_addresses))
    )


def is_loopback(address: str) -> bool:
    """Returns whether packets to the address stay on the node."""
    return ip_address(address).is_loopback
