"""The ports of a Service, validated (docs/semantics.md 12, 13)."""

from msgspec import Struct

from nodeagent.model.addresses import LAST_PORT, Protocol
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.objects import Service
from nodeagent.model.problem import Problem

PROTOCOLS = {protocol.name: protocol for protocol in Protocol}
"""API spelling → protocol."""


class ServicePortSpec(Struct, frozen=True, gc=False):
    """One port of a Service: its name, the port number on service addresses, the node port (0: none)."""

    name: ServicePortName
    port: int
    node_port: int


def is_port_number(number: int) -> bool:
    """Returns whether a packet can carry this number as its destination port."""
    return 0 < number <= LAST_PORT


def service_ports(service: Service, key: ObjectKey, problems: list[Problem]) -> list[ServicePortSpec]:
    """Returns the usable ports in the order of the spec.

    The API server refuses what is refused here; a directory of manifests has no API server. A second port with the
    same name and protocol is left out, because name and protocol identify a service port.
    """
    specs: dict[ServicePortName, ServicePortSpec] = {}
    for port in service.spec.ports or ():
        protocol = PROTOCOLS.get(port.protocol or "TCP")
        node_port = port.node_port or 0
        if protocol is None or not is_port_number(port.port) or not 0 <= node_port <= LAST_PORT:
            detail = f"port {port.name or ''!r} ({port.port}/{port.protocol or 'TCP'}, node port {node_port}): ignored"
            problems.append(Problem(f"Service {key}", "InvalidPort", detail))
            continue
        name = ServicePortName(key, port.name or "", protocol)
        if name in specs:
            detail = f"port {port.port}/{protocol.name} repeats the name {name.port!r}: ignored"
            problems.append(Problem(f"Service {key}", "DuplicatePort", detail))
            continue
        specs[name] = ServicePortSpec(name, port.port, node_port)
    return list(specs.values())
