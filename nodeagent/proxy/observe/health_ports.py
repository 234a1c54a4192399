"""Decides which service answers at which health check port, and at which addresses. Pure.

The API server allocates every healthCheckNodePort once, manifests may not: of several services with one port the
oldest has it (then the first by namespace and name), as with every other conflict.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.precedence import age_of

ANY_ADDRESS = {Family.IPV4: "0.0.0.0", Family.IPV6: "::"}  # noqa: S104 - load balancers probe from outside
_EVERYTHING = {Family.IPV4: 2**32 - 2**24, Family.IPV6: 2**128 - 1}  # node port CIDRs never hold loopback


class Claim(NamedTuple):
    """A service that wants a health check port. Sorts by precedence."""

    age: str
    key: ObjectKey
    local_endpoints: Mapping[Family, int]


class HealthPorts:
    """All claims, updated with the services' states; the cost of an update does not grow with their number."""

    def __init__(self) -> None:
        self._port_by_service: dict[ObjectKey, int] = {}
        self._claims_by_port: dict[int, tuple[Claim, ...]] = {}

    @property
    def ports(self) -> Iterable[int]:
        """Every port that some service claims."""
        return self._claims_by_port.keys()

    def update(self, changed: Mapping[ObjectKey, ServiceState | None]) -> set[int]:
        """Takes in changed services (None: deleted); returns the ports that must be updated."""
        touched = set()
        for key, state in changed.items():
            before = self._port_by_service.pop(key, None)
            if before is not None:
                self._withdraw(before, key)
                touched.add(before)
            check = state.health_check if state is not None else None
            if state is not None and check is not None:
                claim = Claim(age_of(state.created), key, check.local_endpoints)
                self._port_by_service[key] = check.port
                rivals = self._claims_by_port.get(check.port, ())
                self._claims_by_port[check.port] = tuple(sorted((*rivals, claim), key=lambda other: other[:2]))
                touched.add(check.port)
        return touched

    def owner(self, port: int) -> Claim | None:
        """Returns the claim of the service that has the port; None if no service claims it."""
        claims = self._claims_by_port.get(port)
        return claims[0] if claims else None

    def losers(self, port: int) -> tuple[ObjectKey, ...]:
        """Returns the services that want the port too, and do not get it."""
        return tuple(claim.key for claim in self._claims_by_port.get(port, ())[1:])

    def _withdraw(self, port: int, key: ObjectKey) -> None:
        rest = tuple(claim for claim in self._claims_by_port[port] if claim.key != key)
        if rest:
            self._claims_by_port[port] = rest
        else:
            del self._claims_by_port[port]


def listening_addresses(
    family: Family, node_port_cidrs: Iterable[str], node_addresses: Iterable[str]
) -> tuple[str, ...]:
    """Returns where health check ports of a family are served: where node ports are.

    node_port_cidrs: disjoint, without loopback. If they cover everything, the wildcard address is returned; else those of the
    node's addresses that are in them. IPv6 link-local addresses have no meaning without an interface and are left out.
    """
    networks = [ip_network(cidr) for cidr in node_port_cidrs if family_of(cidr) is family]
    if sum(network.num_addresses for network in networks) >= _EVERYTHING[family]:
        return (ANY_ADDRESS[family],)
    own = (ip_address(address) for address in node_addresses if family_of(address) is family)
    served = (
        address
        for address in own
        if not (isinstance(address, IPv6Address) and address.is_link_local)
        and any(address in network for network in networks)
    )
    return tuple(str(address) for address in sorted(served, key=lambda address: address.packed))
