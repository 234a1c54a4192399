"""Decides whether a browser calls on behalf of another page. Pure.

A page of an attacker can make a browser connect to a server that the attacker cannot reach: under a name of the attacker's that
resolves to that server's address (DNS rebinding; then Host is that name), or from its own origin (then Origin is that).
A server is reached by an address or as localhost without any name of an attacker.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

_SCHEMES: Final = ("http://", "https://")
_BY_ADDRESS: Final = "call this server by an address, localhost or a name that it has"
_OWN_PAGES: Final = "this is not for pages of other origins"


class AllowedHosts:
    """The hosts under which a server may be called: its addresses, localhost and names. names: without port. port: the only valid
    one; None: any, for forwarded connections."""

    def __init__(self, names: Iterable[str] = (), *, port: int | None = None) -> None:
        self._names = frozenset(name.lower().rstrip(".") for name in names) | {"localhost"}
        self._port = port

    def why_refused(self, host: str, origin: str) -> str:
        """Returns in one line why a request with these headers is refused; empty: it is not. An absent header is empty."""
        if host and not self._is_ours(host.lower()):  # every browser sends Host
            return _BY_ADDRESS
        return _OWN_PAGES if is_of_another_page(host, origin) else ""

    def _is_ours(self, host: str) -> bool:
        before, colon, port = host.rpartition(":")
        has_port = bool(colon) and port.isascii() and port.isdigit() and not before.endswith(":")
        if self._port is not None and not (has_port and port == str(self._port)):
            return False
        name = before if has_port else host
        return name in self._names or _is_address(name)


def is_of_another_page(host: str, origin: str) -> bool:
    """Returns whether a browser sent a request with these headers for a page of another origin."""
    return bool(origin) and origin.lower() not in {scheme + host.lower() for scheme in _SCHEMES}


def _is_address(name: str) -> bool:
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True
