"""Finds the HTTP proxy to the API server in the environment variables.

The rules are those of golang.org/x/net/http/httpproxy, which client-go follows: HTTPS_PROXY (for an http:// server
HTTP_PROXY) or its lower-case twin; NO_PROXY is a list of addresses, CIDRs and domains, each (except CIDRs) with a port or
without; localhost and loopback addresses are always reached directly.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from nodeagent.proxy.source.client.api_errors import KubeconfigError

DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEMES = frozenset(DEFAULT_PORTS)

Address = IPv4Address | IPv6Address


def environment_proxy(server: str, environment: Mapping[str, str]) -> str | None:
    """Returns the URL of the proxy to this server; None for a direct connection. Raises KubeconfigError, which names the
    variable, if the proxy must be used but is not usable."""
    parts = urlsplit(server)
    variable = "HTTPS_PROXY" if parts.scheme == "https" else "HTTP_PROXY"
    proxy = _value(environment, variable)
    host = parts.hostname or ""
    if not proxy or not _may_use_proxy(
        host, parts.port or DEFAULT_PORTS[parts.scheme], _value(environment, "NO_PROXY")
    ):
        return None
    url = proxy if "://" in proxy else f"http://{proxy}"
    if not is_usable_proxy(url):
        shown = without_password(url)
        raise KubeconfigError(f"{variable}: {shown!r} is not the URL of an HTTP proxy; others are not supported")
    return url


def is_usable_proxy(url: str) -> bool:
    """Returns whether the URL names a proxy that requests can be sent through."""
    try:
        parts = urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def without_password(url: str) -> str:
    """Returns the URL as it may be shown, with the password replaced."""
    head, at, place = url.rpartition("@")
    scheme, slashes, user = head.rpartition("://")
    name, colon, _ = user.partition(":")
    return f"{scheme}{slashes}{name}{':***' if colon else ''}{at}{place}"


def _value(environment: Mapping[str, str], variable: str) -> str:
    return environment.get(variable) or environment.get(variable.lower(), "")


def _may_use_proxy(host: str, port: int, no_proxy: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return not any(_excludes(entry, host, address, port) for entry in entries if entry)


def _excludes(entry: str, host: str, address: Address | None, port: int) -> bool:
    """Returns whether an entry of NO_PROXY matches this server."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            network = ip_network(entry, strict=False)
        except ValueError:
            return False
        return address is not None and address in network
    name, wanted_port = _split_port(entry)
    if wanted_port not in {"", str(port)}:
        return False
    meant = _address(name)
    if meant is not None or address is not None:
        return meant is not None and meant == address
    name = name.removeprefix("*")
    return bool(name) and (host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}"))


def _split_port(entry: str) -> tuple[str, str]:
    """Returns host and port (empty: every one) of ``host``, ``host:port``, ``[address]:port`` or a bare IPv6 address."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
