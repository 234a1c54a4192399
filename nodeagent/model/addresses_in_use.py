"""Addresses that lead to Services: an endpoint with one of them cannot be reached, because nothing is translated twice."""

from collections.abc import Collection, Iterable

from msgspec import Struct

from nodeagent.model.frontend import FrontendKind, ServiceState


class AddressesInUse(Struct, frozen=True):
    """The addresses and ports of Services. cluster_ips: with all their ports. here: addresses of this node, with the node port.
    outside: external and load-balancer addresses, with the port."""

    cluster_ips: frozenset[str] = frozenset()
    here: frozenset[tuple[str, int]] = frozenset()
    outside: frozenset[tuple[str, int]] = frozenset()


def addresses_in_use(
    states: Iterable[ServiceState], node_addresses: Collection[str], among: Collection[str] | None = None
) -> AddressesInUse:
    """Returns the addresses of these Services. node_addresses: those at which this node answers node ports. among: return only
    these addresses; None: all."""
    cluster_ips: set[str] = set()
    here: set[tuple[str, int]] = set()
    outside: set[tuple[str, int]] = set()
    own = [one for one in node_addresses if among is None or one in among]
    for state in states:
        cluster_ips.update(one for one in state.cluster_ips if among is None or one in among)
        for one in state.frontends:
            if one.address is None:
                here.update((address, one.port) for address in own)
            elif one.kind is not FrontendKind.CLUSTER_IP and (among is None or one.address in among):
                outside.add((one.address, one.port))
    return AddressesInUse(frozenset(cluster_ips), frozenset(here), frozenset(outside))
