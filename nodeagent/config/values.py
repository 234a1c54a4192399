"""The values of a configuration: how each is written, read and checked.

Every validator takes what a YAML file can contain (or the value itself) and raises ValueError with a reason that
follows ``file:line: key: ``.
"""

import os
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Strict

from nodeagent.config.durations import Duration, parse_duration
from nodeagent.model.addresses import LAST_PORT, Family, endpoint_text, parse_address, parse_network

_SOCKET_PATH_LENGTH = 80  # sun_path has 108 bytes (unix(7)); a name beside it may be longer
_LABEL_LENGTH = 63  # of a name in DNS, RFC 1035
_INTERFACE_NAME_LENGTH = 15  # IFNAMSIZ in linux/if.h is 16 bytes with the closing NUL
_FORBIDDEN_IN_INTERFACE_NAME = re.compile(r"[/:\s]")  # dev_valid_name(), net/core/dev.c
_ZONE = re.compile(r"(?=.{1,200}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9])?)*")
_NODE_NAME = re.compile(r"[^\s/,=]{1,253}")  # it is used in a path and in a field selector

ANY_IPV4 = "0.0.0.0"  # noqa: S104 - a value to compare with; nothing is bound here
PRIMARY = "primary"
ALL = "all"
LOCALHOST = "localhost"


class DetectLocalMode(StrEnum):
    """How traffic from this node's pods is recognised (kube-proxy's names)."""

    CLUSTER_CIDR = "ClusterCIDR"
    NODE_CIDR = "NodeCIDR"
    BRIDGE_INTERFACE = "BridgeInterface"
    INTERFACE_NAME_PREFIX = "InterfaceNamePrefix"


class EndpointsApi(StrEnum):
    """The API from which endpoints are read."""

    AUTO = "auto"
    ENDPOINT_SLICES = "endpointslices"
    ENDPOINTS = "endpoints"


class TableOwnership(StrEnum):
    """Whether the nftables tables carry the owner and persist flags."""

    AUTO = "auto"
    OWNED = "owned"
    PLAIN = "plain"


class PodNames(StrEnum):
    """Which names of pods cluster DNS answers (CoreDNS's terms)."""

    INSECURE = "insecure"
    VERIFIED = "verified"
    DISABLED = "disabled"


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


class BindAddress(NamedTuple):
    """Where a server listens: an IP address (canonical text) and a port, 1 to 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        return endpoint_text(self.host, self.port)


class StubServer(NamedTuple):
    """A resolver for the names of one zone."""

    zone: str
    server: BindAddress

    def __str__(self) -> str:
        return f"{self.zone}={self.server}"


V = TypeVar("V")
AnyFamilies = Literal["auto"] | tuple[Family, ...]


def _text(value: object, what: str) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"must be {what}, not {value!r}")


def _duration(value: object) -> Duration:
    return value if isinstance(value, Duration) else parse_duration(_text(value, "a duration like 30s or 1h30m"))


def _at_least(least: int, duration: Duration) -> Duration:
    if duration.nanoseconds < least:
        raise ValueError("must be greater than 0" if least else "must not be negative")
    return duration


def _whole_seconds(duration: Duration) -> Duration:
    if duration.nanoseconds % 1_000_000_000:
        raise ValueError("must be whole seconds, as the kernel keeps this timeout in seconds")
    return duration


def _bind_address(value: object, default_port: int) -> BindAddress | None:
    if value is None or isinstance(value, BindAddress):
        return value
    text = _text(value, "IP:port")
    if not text:
        return None
    bare = parse_address(text)
    if bare is not None:
        return BindAddress(bare, default_port)
    host, colon, port_text = text.rpartition(":")
    if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ValueError(f"must be IP:port, IPv6 in brackets, not {text!r}")
    address = parse_address(host.removeprefix("[").removesuffix("]"))
    if address is None:
        raise ValueError(f"must be IP:port (0.0.0.0 or [::] for any address); {host!r} is not an IP address")
    if not _is_port(port_text):
        raise ValueError(f"port {port_text!r} is not a number from 1 to {LAST_PORT}")
    return BindAddress(address, int(port_text))


def _dns_address(value: object) -> BindAddress:
    address = _bind_address(value, 53)
    if address is None:
        raise ValueError("must be IP:port, not an empty text")
    if address.host in {ANY_IPV4, "::"}:
        raise ValueError(f"{value!r} is a wildcard; name the address")
    return address


_A_ZONE = "a zone, like cluster.local"


def _dns_name(like: str, value: str) -> str:
    name = value.strip().lower().removesuffix(".")
    if not _ZONE.fullmatch(name) or any(len(label) > _LABEL_LENGTH for label in name.split(".")):
        raise ValueError(f"{value!r} is not the name of {like}")
    return name


def _stub_zones(value: object) -> object:
    """Returns a list; files may also have a mapping of zones to their servers."""
    if not isinstance(value, Mapping):
        return value
    found = []
    for zone, servers in value.items():
        if not isinstance(servers, list | tuple) or not servers:
            raise ValueError(f"{zone!r} needs a list of its servers, like [10.0.0.1:53]")
        found += [f"{zone}={server}" for server in servers]
    return found


def _stub_server(value: object) -> StubServer:
    if isinstance(value, StubServer):
        return value
    zone, sign, server = _text(value, "ZONE=IP:port").partition("=")
    if not sign:
        raise ValueError(f"must be ZONE=IP:port, not {value!r}")
    return StubServer(_dns_name(_A_ZONE, zone), _dns_address(server.strip()))


def _cidr(value: str) -> str:
    network = parse_network(value)
    if network is None:
        raise ValueError(f"{value!r} is not a CIDR (an address, a slash and a prefix length, like 10.0.0.0/8)")
    return str(network)


def _node_port_address(value: str) -> str:
    if value in {PRIMARY, ALL}:
        return value
    if value == LOCALHOST:
        raise ValueError("'localhost' is not supported: node ports are never answered on loopback addresses")
    if parse_network(value) is None:
        raise ValueError(f"{value!r} is neither a CIDR nor 'primary' or 'all'")
    return _cidr(value)


def _is_port(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(LAST_PORT))
    return digits and 1 <= int(text) <= LAST_PORT


def _port(value: object) -> int:
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, bool) or not _is_port(text):
        raise ValueError(f"{value!r} is not a port, a number from 1 to {LAST_PORT}")
    return int(text)


def _distinct(values: tuple[V, ...]) -> tuple[V, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{value} is listed twice")
    return values


def _primary_if_none(values: tuple[str, ...]) -> tuple[str, ...]:
    """An empty list means "not set" to kube-proxy, in files and in flags."""
    return values or (PRIMARY,)


def _families(value: object) -> AnyFamilies:
    listed = (value,) if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not listed:
        raise ValueError("must be 'auto' or a list of 'IPv4' and 'IPv6'")
    if tuple(listed) == ("auto",):
        return "auto"
    families: list[Family] = []
    for item in listed:
        name = item.value if isinstance(item, Family) else item
        if name not in ("IPv4", "IPv6"):
            raise ValueError(f"must be 'auto' or a list of 'IPv4' and 'IPv6', not {name!r}")
        if Family(name) in families:
            raise ValueError(f"{name} is listed twice")
        families.append(Family(name))
    return tuple(families)


def _interface_name(value: str) -> str:
    if value in {".", ".."} or _FORBIDDEN_IN_INTERFACE_NAME.search(value):
        raise ValueError(f"{value!r} is not an interface name (no '/', ':' or blanks)")
    if len(value.encode()) > _INTERFACE_NAME_LENGTH:
        raise ValueError(f"{value!r} is longer than the {_INTERFACE_NAME_LENGTH} bytes an interface name may have")
    return value


def _interface_name_prefix(value: str) -> str:
    if value.endswith(("*", "+")):
        raise ValueError(f"{value!r} ends in a wildcard; give the prefix alone")
    return _interface_name(value)


def _address_override(value: object) -> str | None:
    if value is None or value == "":
        return None
    address = parse_address(value) if isinstance(value, str) else None
    if address is None:
        raise ValueError(f"{value!r} is not an IP address")
    return None if address in {ANY_IPV4, "::"} else address


def _node_name(value: object) -> str:
    name = _text(value, "a string").strip().lower()
    if not name:
        raise ValueError("must not be empty")
    if not _NODE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a node name (at most 253 characters, without blanks and '/', ',', '=')")
    return name


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{value!r} is not a URL like https://10.0.0.1:6443")
    return value.rstrip("/")


def _path(value: object) -> Path | None:
    if value is None or value == "":
        return None
    return value if isinstance(value, Path) else Path(_text(value, "a path"))


def _socket_path(value: object) -> Path | None:
    path = _path(value)
    if path is not None and not path.is_absolute():
        raise ValueError(f"must be an absolute path, not {str(path)!r}")
    if path is not None and len(os.fsencode(path)) > _SOCKET_PATH_LENGTH:
        raise ValueError(f"must not be longer than {_SOCKET_PATH_LENGTH} bytes")
    return path


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _split_at_commas(value: object) -> object:
    """Accepts text, too: earlier versions had several values in one text, and one value is usual."""
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


def bind_address(default_port: int) -> Callable[[object], BindAddress | None]:
    """Returns a validator of ``IP:port``; a bare IP gets `default_port`, empty text means that nothing listens."""
    return partial(_bind_address, default_port=default_port)


AnyLogLevel = Annotated[LogLevel, BeforeValidator(_lower)]
Switch = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=0)]
OomScore = Annotated[int, Strict(), Field(ge=-1000, le=1000)]
Period = Annotated[Duration, PlainValidator(_duration), AfterValidator(partial(_at_least, 1))]
Pause = Annotated[Duration, PlainValidator(_duration), AfterValidator(partial(_at_least, 0))]
KernelTimeout = Annotated[
    Duration, PlainValidator(_duration), AfterValidator(partial(_at_least, 0)), AfterValidator(_whole_seconds)
]
Cidr = Annotated[str, Strict(), AfterValidator(_cidr)]
Cidrs = Annotated[tuple[Cidr, ...], AfterValidator(_distinct)]
NodePortAddress = Annotated[str, Strict(), AfterValidator(_node_port_address)]
NodePortAddresses = Annotated[tuple[NodePortAddress, ...], AfterValidator(_primary_if_none), AfterValidator(_distinct)]
Ports = Annotated[tuple[Annotated[int, PlainValidator(_port)], ...], AfterValidator(_distinct)]
DnsAddress = Annotated[BindAddress, PlainValidator(_dns_address)]
DnsAddresses = Annotated[tuple[DnsAddress, ...], AfterValidator(_distinct)]
DnsZone = Annotated[str, Strict(), AfterValidator(partial(_dns_name, _A_ZONE))]
HostName = Annotated[str, Strict(), AfterValidator(partial(_dns_name, "a host, like node-a.example.com"))]
HostNames = Annotated[tuple[HostName, ...], AfterValidator(_distinct)]
StubServers = Annotated[
    tuple[Annotated[StubServer, PlainValidator(_stub_server)], ...],
    BeforeValidator(_stub_zones),
    AfterValidator(_distinct),
]
DnsZones = Annotated[tuple[DnsZone, ...], Field(min_length=1), AfterValidator(_distinct)]
Families = Annotated[AnyFamilies, PlainValidator(_families)]
NodeName = Annotated[str, PlainValidator(_node_name)]
AddressOverride = Annotated[str | None, PlainValidator(_address_override)]
Interface = Annotated[str, Strict(), Field(min_length=1), AfterValidator(_interface_name)]
AnyInterface = Annotated[Interface | None, BeforeValidator(_none_if_empty)]
AnyInterfacePrefix = Annotated[
    Annotated[str, Strict(), AfterValidator(_interface_name_prefix)] | None, BeforeValidator(_none_if_empty)
]
AnyText = Annotated[Annotated[str, Strict()] | None, BeforeValidator(_none_if_empty)]
Url = Annotated[str, Strict(), AfterValidator(_url)]
Urls = Annotated[tuple[Url, ...], BeforeValidator(_split_at_commas), AfterValidator(_distinct)]
AnyPath = Annotated[Path | None, PlainValidator(_path)]
SocketPath = Annotated[Path | None, PlainValidator(_socket_path)]
HealthzAddress = Annotated[BindAddress | None, PlainValidator(bind_address(10256))]
MetricsAddress = Annotated[BindAddress | None, PlainValidator(bind_address(10249))]
