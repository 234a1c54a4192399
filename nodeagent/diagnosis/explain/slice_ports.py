"""Which ports of a slice are those of a Service: they meet by name and protocol (docs/semantics.md 12, 13)."""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.names import ServicePortName
from nodeagent.model.objects import EndpointSlice
from nodeagent.proxy.translate.service_endpoints import PortKey
from nodeagent.proxy.translate.service_ports import PROTOCOLS, is_port_number


class PortMatch(Struct, frozen=True):
    """A service port and what a slice has for it.

    numbers: the port numbers of the endpoints; none when nothing matches. others: what the slice has instead, in words.
    """

    name: str
    protocol: str
    numbers: tuple[int, ...]
    others: tuple[str, ...]

    def key(self, family: Family) -> PortKey:
        """Returns the key of its endpoints in the translation."""
        return (family, self.name, Protocol[self.protocol])


def slice_ports(one: EndpointSlice, names: Sequence[ServicePortName]) -> list[PortMatch]:
    """Returns what the slice has for each service port."""
    usable: dict[tuple[str, Protocol], list[int]] = {}
    others = []
    for port in one.ports or ():
        protocol = PROTOCOLS.get(port.protocol or "TCP")
        others.append(f"{port.name or 'an unnamed one'!s} ({port.port or 'no number'}/{port.protocol or 'TCP'})")
        if port.name is not None and port.port and protocol is not None and is_port_number(port.port):
            usable.setdefault((port.name, protocol), []).append(port.port)
    return [
        PortMatch(
            name.port,
            name.protocol.name,
            tuple(dict.fromkeys(usable.get((name.port, name.protocol), ()))),
            tuple(others),
        )
        for name in names
    ]
