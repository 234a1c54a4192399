"""The settings of a server, and which of them are invalid. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from nodeagent.apiserver.addresses.ranges import AddressRange, Network, parse_port_range, parse_service_ranges
from nodeagent.apiserver.storage.store import Window
from nodeagent.apiserver.storages import EtcdSettings
from nodeagent.kinds.description.address_texts import parse_cidr
from nodeagent.runtime.serving.admission import ConnectionLimits

LIMIT_BYTES: Final = 512 * 1024 * 1024


class SettingsRefused(ValueError):
    """The server cannot, or must not, start with these settings; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """All settings of a server. Addresses and ranges are text, checked by `check`."""

    host: str = "127.0.0.1"
    port: int = 6443
    data_dir: Path | None = None
    """For the server's keys, and its objects unless they are stored elsewhere. None: everything is in memory."""
    in_memory: bool = False
    """Keep objects in memory although there is a data directory."""
    etcd: EtcdSettings | None = None
    """Keep objects in etcd."""
    kubeconfig_out: Path | None = None
    advertise_address: str = ""
    service_ranges: str = "10.96.0.0/12"
    node_ports: str = "30000-32767"
    load_balancer_cidr: str = ""
    taken: tuple[tuple[str, str], ...] = ()
    """(description, CIDR) pairs that service ranges may not overlap: pod and node ranges."""
    insecure: bool = False
    """Plain HTTP without credentials; on loopback only."""
    window: Window = field(default_factory=Window)
    compact_every_seconds: float = 30.0
    """An upper limit; see `forget_every_seconds`."""
    limit_bytes: int | None = LIMIT_BYTES
    """The size of a store on disk or in memory; etcd has a limit of its own (its --quota-backend-bytes)."""
    has_collector: bool = False
    """Whether a garbage collector works on the objects: that of a kube-controller-manager."""
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)

    @property
    def forget_every_seconds(self) -> float:
        """How often the history is cut to its window; more often if the window is short."""
        return min(self.compact_every_seconds, max(self.window.seconds, 1.0))


@dataclass(frozen=True, slots=True)
class CheckedSettings:
    """The parsed values of valid settings."""

    ranges: tuple[AddressRange, ...]
    balancers: tuple[Network, ...]
    advertised: str


def check(settings: ServerSettings) -> CheckedSettings:
    """Returns the parsed settings. Raises SettingsRefused."""
    try:
        host = ip_address("127.0.0.1" if settings.host == "localhost" else settings.host)
    except ValueError:
        raise SettingsRefused(f"listen address {settings.host!r} is not an IP address") from None
    if settings.insecure and not host.is_loopback:
        raise SettingsRefused(f"refusing to listen on {host} without TLS and credentials: leave out --insecure")
    advertised = settings.advertise_address or str(host)
    if host.is_unspecified and not settings.advertise_address:
        raise SettingsRefused(f"listening on {host} needs --advertise-address: clients need one address to connect to")
    try:
        ip_address(advertised)
        ranges = parse_service_ranges(settings.service_ranges, settings.taken)
        parse_port_range(settings.node_ports)
    except ValueError as error:
        raise SettingsRefused(str(error)) from None
    return CheckedSettings(ranges, _balancers(settings.load_balancer_cidr, ranges), advertised)


def _balancers(text: str, ranges: Sequence[AddressRange]) -> tuple[Network, ...]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        network = parse_cidr(part)
        if network is None:
            raise SettingsRefused(f"--load-balancer-cidr: {part!r} is not a CIDR")
        for service in ranges:
            if network.version == service.network.version and network.overlaps(service.network):
                raise SettingsRefused(f"--load-balancer-cidr {network} overlaps the service range {service.network}")
        found.append(network)
    return tuple(found)
