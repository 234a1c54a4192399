"""Decides which tracked UDP flows must be deleted: those whose answers would come from something that no longer serves.

Pure. A UDP client that keeps its port keeps its conntrack entry, and so its endpoint, for as long as it sends: without
this, clients stay on a deleted endpoint or, having sent before there was one, on the service address itself
(kubernetes/kubernetes #125467, #139628, #141371). Not deleted: flows to any endpoint that still serves, whatever
traffic policy or topology say now; and everything that is not a UDP flow to a place of a service.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from nodeagent.model.addresses import Family, pack_address
from nodeagent.model.frontend import UdpPort
from nodeagent.model.names import ServicePortName
from nodeagent.wire.netlink.conntrack import Flow

Serving = frozenset[tuple[bytes, int]]
"""(packed address, port) of endpoints."""


class UdpPlace(NamedTuple):
    """Where a UDP service port is reached: packed address and port; address None: a node port."""

    family: Family
    address: bytes | None
    port: int


class Targets(NamedTuple):
    """The places of one family to look at, with the endpoints that serve each now.

    addressed: by packed address and port. node_ports: by port, at `local` (packed) addresses of the node only.
    """

    addressed: Mapping[tuple[bytes, int], Serving]
    node_ports: Mapping[int, Serving]
    local: frozenset[bytes]

    @property
    def places(self) -> int:
        """The number of places to look at."""
        return len(self.addressed) + len(self.node_ports)

    def is_stale(self, flow: Flow) -> bool:
        """Returns whether `flow` goes to one of the places, but not to an endpoint that serves it. An address has precedence over a node
        port."""
        serving = self.addressed.get((flow.destination, flow.port))
        if serving is None and flow.destination in self.local:
            serving = self.node_ports.get(flow.port)
        return serving is not None and (flow.reply_source, flow.reply_port) not in serving


class UdpLedger:
    """Remembers which endpoints serve which place, and which places changed, so that callers need not know the former state."""

    def __init__(self) -> None:
        self._ports: dict[tuple[ServicePortName, Family], UdpPort] = {}
        self._serving: dict[UdpPlace, dict[ServicePortName, Serving]] = {}
        self._changed: set[UdpPlace] = set()
        self._node_ports: set[UdpPlace] = set()

    @property
    def changed(self) -> frozenset[UdpPlace]:
        """The places whose flows have to be looked at."""
        return frozenset(self._changed)

    def note(self, udp_port: UdpPort, packed: Serving | None = None) -> None:
        """Takes the present state of a service port. A deleted one, or one without endpoints, has no endpoint that serves its places.

        An unchanged port changes nothing. Places that the port no longer has need not be named.
        packed: the result of `packed_serving`, if the caller has it already.
        """
        key = (udp_port.service_port, udp_port.family)
        before = self._ports.get(key)
        if before == udp_port:
            return
        if before is not None:
            for place in _places(before):
                self._changed.add(place)
                self._withdraw(place, udp_port.service_port)
        self._changed.update(_places(udp_port))
        self._node_ports.update(place for place in _places(udp_port) if place.address is None)
        if not udp_port.serving:
            self._ports.pop(key, None)
            return
        self._ports[key] = udp_port
        serving = packed_serving(udp_port) if packed is None else packed
        for place in _places(udp_port):
            self._serving.setdefault(place, {})[udp_port.service_port] = serving

    def mark_node_ports(self) -> None:
        """Marks every node port as changed, because the node has new addresses. If it had them before, old flows to them may be left
        that no later change of a node port has ended."""
        self._changed.update(self._node_ports)

    def mark_family(self, family: Family) -> None:
        """Marks every place with endpoints as changed: untranslated flows to it may have begun."""
        self._changed.update(place for place in self._serving if place.family is family)

    @property
    def served(self) -> Collection[UdpPlace]:
        """Every place that has endpoints."""
        return self._serving.keys()

    def take_changed(self) -> frozenset[UdpPlace]:
        """Returns the changed places, and no longer counts them as changed."""
        taken, self._changed = frozenset(self._changed), set()
        return taken

    def put_back(self, places: Collection[UdpPlace]) -> None:
        """Marks places as changed again, because they could not be handled."""
        self._changed.update(places)

    def serving(self, place: UdpPlace) -> Serving:
        """Returns the endpoints of all owners of the place."""
        return frozenset().union(*self._serving.get(place, {}).values())

    def _withdraw(self, place: UdpPlace, service_port: ServicePortName) -> None:
        owners = self._serving.get(place, {})
        owners.pop(service_port, None)
        if not owners:
            self._serving.pop(place, None)


def packed_serving(udp_port: UdpPort) -> Serving:
    """Returns the endpoints in the form that flows have. Takes a microsecond for each."""
    return frozenset((pack_address(address), port) for address, port in udp_port.serving)


def targets_for(
    places: Collection[UdpPlace], ledger: UdpLedger, family: Family, local_addresses: Collection[str]
) -> Targets:
    """Returns what to look for among the flows of a family.

    A node port adds the places at the node's own addresses with its port: they have precedence over it.
    """
    packed = map(pack_address, local_addresses)
    local = frozenset(address for address in packed if len(address) == family.address_length)
    addressed: dict[tuple[bytes, int], Serving] = {}
    node_ports: dict[int, Serving] = {}
    for place in places:
        if place.family is family and place.address is None:
            node_ports[place.port] = ledger.serving(place)
        elif place.family is family and place.address is not None:
            addressed[place.address, place.port] = ledger.serving(place)
    for place in ledger.served if node_ports else ():
        if place.address in local and place.port in node_ports:
            addressed[place.address, place.port] = ledger.serving(place)
    return Targets(addressed, node_ports, local)


def _places(udp_port: UdpPort) -> list[UdpPlace]:
    places = [UdpPlace(udp_port.family, pack_address(address), udp_port.port) for address in udp_port.addresses]
    if udp_port.node_port:
        places.append(UdpPlace(udp_port.family, None, udp_port.node_port))
    return places
