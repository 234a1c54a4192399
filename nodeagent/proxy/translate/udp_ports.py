"""Decides which conntrack entries belong to a UDP service port (docs/semantics.md 65-67)."""

from collections.abc import Iterable, Mapping

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Frontend, UdpPort
from nodeagent.model.names import ServicePortName

Serving = Mapping[tuple[Family, ServicePortName], frozenset[tuple[str, int]]]
"""The address and port of every endpoint whose flows go on, by service port."""


def udp_ports(frontends: Iterable[Frontend], serving: Serving) -> tuple[UdpPort, ...]:
    """Returns the UDP service ports among `frontends`, with the addresses that they got.

    An address lost to another service or another port must not appear here: the entries of its present owner would
    be deleted because they do not lead to our endpoints.
    """
    addresses: dict[tuple[Family, ServicePortName], list[Frontend]] = {}
    for frontend in frontends:
        if frontend.protocol is Protocol.UDP:
            addresses.setdefault((frontend.family, frontend.service_port), []).append(frontend)
    return tuple([_udp_port(group, serving[key]) for key, group in addresses.items()])


def _udp_port(frontends: list[Frontend], serving: frozenset[tuple[str, int]]) -> UdpPort:
    on_address = [(frontend.address, frontend.port) for frontend in frontends if frontend.address is not None]
    node_ports = [frontend.port for frontend in frontends if frontend.address is None]
    return UdpPort(
        service_port=frontends[0].service_port,
        family=frontends[0].family,
        addresses=tuple([address for address, _ in on_address]),
        port=on_address[0][1] if on_address else 0,
        node_port=node_ports[0] if node_ports else 0,
        serving=serving,
    )
