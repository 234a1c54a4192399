"""Client affinity: which ids are in use, which endpoints are valid under each, which learned entries are stale (pure).

The kernel remembers client → endpoint under a 32-bit id of the service port and the list it was chosen from. An entry
whose endpoint left that list must be deleted, or the client stays on a dead endpoint: the kernel never replaces the value.
"""

from collections.abc import Mapping
from hashlib import blake2s

from msgspec.structs import replace

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import Frontend, Scope, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.image.image import Elements, class_of, endpoint_value
from nodeagent.proxy.dataplane.program.classes import STICKY_BIT
from nodeagent.wire.netlink.nf_tables.element_reading import ElementDump

Holder = tuple[ServicePortName, Scope]
ValidEndpoints = Mapping[int, frozenset[bytes]]
"""id → endpoints of its list."""


def affinity_id(service_port: ServicePortName, scope: Scope) -> int:
    """Returns the id under which clients of one list of one service port are remembered.

    It must be the same in every run of the agent, so it is a digest of the name. One of its 32 bits is always set
    (STICKY_BIT); not all of them are ever set (nft prints that number as a word).
    """
    text = f"{service_port.service} {service_port.port} {int(service_port.protocol)} {scope.value}"
    digest = int.from_bytes(blake2s(text.encode(), digest_size=4).digest(), "big")
    return min(digest | STICKY_BIT, 0xFFFFFFFE)


def sticky_endpoints(state: ServiceState, family: Family) -> dict[Holder, set[bytes]]:
    """Returns the endpoints that clients may be bound to, for each list of the service that has affinity."""
    found: dict[Holder, set[bytes]] = {}
    seen: set[tuple[Holder, int]] = set()
    for frontend in state.frontends:
        if frontend.family is not family or frontend.affinity_seconds is None:
            continue
        for route in (frontend.route, frontend.short_circuit):
            if route is None:
                continue
            known = ((frontend.service_port, route.scope), id(route))
            if known not in seen:  # the frontends of a port have the same route
                seen.add(known)
                endpoints = (endpoint_value(backend.address, backend.port) for backend in route.backends)
                found.setdefault(known[0], set()).update(endpoints)
    return found


class AffinityIds:
    """Tracks which list has which id in one family.

    Two lists with the same id (one chance in a million with a hundred sticky services) would send clients to each other's
    endpoints. So the later one gets no affinity, and that is reported.
    """

    def __init__(self, family: Family) -> None:
        self.problems: dict[ObjectKey, Problem] = {}
        self._family = family
        self._holders: dict[int, Holder] = {}
        self._endpoints: dict[int, frozenset[bytes]] = {}
        self._ids_by_service: dict[ObjectKey, tuple[int, ...]] = {}
        self._lost = False
        self._taken: ValidEndpoints | None = None

    def snapshot(self) -> ValidEndpoints:
        """Returns the present valid endpoints, as a copy that later changes do not alter."""
        if self._taken is None:
            self._taken = dict(self._endpoints)
        return self._taken

    def take_lost(self) -> bool:
        """Returns whether an endpoint left any list since the last call, so that entries may be stale."""
        lost, self._lost = self._lost, False
        return lost

    def knows(self, key: ObjectKey) -> bool:
        """Returns whether a service has lists with affinity, or had to do without."""
        return key in self._ids_by_service or key in self.problems

    def admit(self, key: ObjectKey, state: ServiceState | None) -> ServiceState | None:
        """Takes in the new state of a service; returns it, without affinity where another list has its id."""
        wanted = {} if state is None else sticky_endpoints(state, self._family)
        if not wanted and key not in self._ids_by_service and key not in self.problems:
            return state
        before = {number: self._endpoints.pop(number) for number in self._ids_by_service.pop(key, ())}
        for number in before:
            del self._holders[number]
        self.problems.pop(key, None)
        refused: set[ServicePortName] = set()
        held: list[int] = []
        for holder, endpoints in wanted.items():
            number = affinity_id(*holder)
            if number in self._holders:
                refused.add(holder[0])
                detail = f"{holder[0]}: no session affinity: its id is that of {self._holders[number][0]}"
                self.problems[key] = Problem(f"Service {key}", "AffinityIdTaken", detail)
                continue
            self._holders[number] = holder
            self._endpoints[number] = frozenset(endpoints)
            held.append(number)
        if held or before:
            self._taken = None
        if held:
            self._ids_by_service[key] = tuple(held)
        self._lost = self._lost or any(old - self._endpoints.get(number, frozenset()) for number, old in before.items())
        if state is None or not refused:
            return state
        frontends = tuple(_without_affinity(frontend, refused) for frontend in state.frontends)
        return replace(state, frontends=frontends)


def _without_affinity(frontend: Frontend, refused: set[ServicePortName]) -> Frontend:
    return replace(frontend, affinity_seconds=None) if frontend.service_port in refused else frontend


def is_stale(key: bytes, endpoint: bytes, valid: ValidEndpoints) -> bool:
    """Returns whether a learned entry (client . protocol . id → endpoint) leads to an endpoint that is not in its list."""
    return endpoint not in valid.get(class_of(key[-4:]), frozenset())


def stale_entries(learned: Elements, valid: ValidEndpoints) -> Elements:
    """Returns the entries whose endpoint is in no list of their id any more."""
    return {key: endpoint for key, endpoint in learned.items() if is_stale(key, endpoint, valid)}


def valid_entries(learned: ElementDump, valid: ValidEndpoints) -> dict[bytes, tuple[bytes, int, int]]:
    """Returns what a rebuilt table shall remember: key → (endpoint, timeout ms, remaining ms)."""
    return {
        key: (endpoint, *learned.expirations[key])
        for key, endpoint in learned.elements.items()
        if key in learned.expirations and not is_stale(key, endpoint, valid)
    }
