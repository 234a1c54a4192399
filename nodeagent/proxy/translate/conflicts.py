"""Decides which Service gets an address that several claim (docs/semantics.md 17, docs/decisions/0011-address-conflicts.md).

A frontend's place (family, address, protocol, port) belongs to one Service: the oldest, then the first by namespace
and name. A ClusterIP belongs to its Service as a whole: no other Service gets any port of it as an external or
load-balancer address. The Service that loses does not get that frontend; it gets an ``AddressConflict`` problem.
"""

from typing import NamedTuple, TypeVar

import msgspec

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Frontend, FrontendKind, ServiceState, have_same_places
from nodeagent.model.names import ObjectKey
from nodeagent.model.precedence import age_of
from nodeagent.model.problem import Problem
from nodeagent.proxy.translate.udp_ports import udp_ports

FrontendPlace = tuple[Family, str | None, Protocol, int]

_Where = TypeVar("_Where", FrontendPlace, str)


class _Claim(NamedTuple):
    """One Service's claim. Claims sort by precedence: ClusterIPs first, then age, then name."""

    external: bool
    created: str
    key: ObjectKey


class _Footprint(NamedTuple):
    """The part of a service's state that can conflict with other services: its claims and its age.

    places: with True for those that are not on a cluster IP. external: the addresses of these, each once.
    """

    created: str
    cluster_ips: tuple[str, ...]
    places: tuple[tuple[FrontendPlace, bool], ...]
    external: tuple[str, ...]


class Claims:
    """Holds the claims of all services, indexed so that the cost of a change grows with the service, not with the cluster.

    The result depends on the present claims only, not on the order in which they came.
    """

    def __init__(self) -> None:
        self._claimants: dict[ObjectKey, ServiceState] = {}
        self._places: dict[FrontendPlace, tuple[_Claim, ...]] = {}
        self._cluster_ips: dict[str, tuple[_Claim, ...]] = {}
        self._external: dict[str, set[ObjectKey]] = {}
        self._contested = 0
        """How many places several services claim."""

    def update(self, key: ObjectKey, state: ServiceState | None) -> set[ObjectKey]:
        """Replaces the claims of a service (None: it has none). Returns the *other* services that must be resolved again."""
        claimant = self._claimants.get(key)
        if claimant is not None and state is not None and _claim_the_same(claimant, state):
            self._claimants[key] = state
            return set()
        before = None if claimant is None else _footprint(claimant)
        after = _footprint(state) if state is not None and (state.frontends or state.cluster_ips) else None
        if state is not None and after is not None:
            self._claimants[key] = state
        else:
            self._claimants.pop(key, None)
        if before == after:
            return set()
        affected: set[ObjectKey] = set()
        if before is not None:
            self._withdraw(key, before, affected)
        if after is not None:
            self._enter(key, after, affected)
        affected.discard(key)
        return affected

    def resolve(self, state: ServiceState) -> ServiceState:
        """Returns the state without the frontends that belong to other services; the same object if it lost none."""
        if not self._contested and all(frontend.kind is FrontendKind.CLUSTER_IP for frontend in state.frontends):
            return state
        lost = [(frontend, winner) for frontend in state.frontends if (winner := self._winner(state.key, frontend))]
        if not lost:
            return state
        missing = {frontend.place for frontend, _ in lost}
        frontends = tuple([frontend for frontend in state.frontends if frontend.place not in missing])
        problems = [_conflict(frontend, winner) for frontend, winner in lost]
        return msgspec.structs.replace(
            state,
            frontends=frontends,
            udp_ports=udp_ports(
                frontends, {(port.family, port.service_port): port.serving for port in state.udp_ports}
            ),
            problems=tuple(sorted({*state.problems, *problems})),
        )

    def _winner(self, key: ObjectKey, frontend: Frontend) -> ObjectKey | None:
        """Returns the other service that has the frontend's place; None if the place is the service's own."""
        address = frontend.address
        if address is not None and frontend.kind is not FrontendKind.CLUSTER_IP:
            owners = self._cluster_ips.get(address, ())
            if owners and all(owner.key != key for owner in owners):
                return owners[0].key
        winner = self._places[frontend.family, address, frontend.protocol, frontend.port][0].key
        return winner if winner != key else None

    def _enter(self, key: ObjectKey, footprint: _Footprint, affected: set[ObjectKey]) -> None:
        age = age_of(footprint.created)
        on_cluster_ip, elsewhere = (_Claim(False, age, key),), (_Claim(True, age, key),)
        for address in footprint.cluster_ips:
            _add(self._cluster_ips, address, on_cluster_ip)
            affected.update(self._external.get(address, ()))
        for place, external in footprint.places:
            if rivals := _add(self._places, place, elsewhere if external else on_cluster_ip):
                self._contested += len(rivals) == 1
                affected.update([rival.key for rival in rivals])
        for address in footprint.external:
            self._external.setdefault(address, set()).add(key)

    def _withdraw(self, key: ObjectKey, footprint: _Footprint, affected: set[ObjectKey]) -> None:
        for address in footprint.cluster_ips:
            _drop(self._cluster_ips, address, key)
            affected.update(self._external.get(address, ()))
        for place, _ in footprint.places:
            rivals = _drop(self._places, place, key)
            self._contested -= len(rivals) == 1
            affected.update([rival.key for rival in rivals])
        for address in footprint.external:
            claimants = self._external[address]
            claimants.discard(key)
            if not claimants:
                del self._external[address]


def _claim_the_same(one: ServiceState, other: ServiceState) -> bool:
    """Returns whether two states of a service have the same footprint, as when only its endpoints differ."""
    return (
        one.created == other.created
        and one.cluster_ips == other.cluster_ips
        and have_same_places(one.frontends, other.frontends)
    )


def _footprint(state: ServiceState) -> _Footprint:
    places = tuple([(frontend.place, frontend.kind is not FrontendKind.CLUSTER_IP) for frontend in state.frontends])
    external = dict.fromkeys([place[1] for place, outside in places if outside and place[1] is not None])
    return _Footprint(state.created, state.cluster_ips, places, tuple(external))


def _add(index: dict[_Where, tuple[_Claim, ...]], where: _Where, claim: tuple[_Claim]) -> tuple[_Claim, ...]:
    """Adds a claim to an entry; returns those of others. An entry with this claim only is the given tuple, which others share."""
    rivals: tuple[_Claim, ...] = index.get(where, ())
    index[where] = tuple(sorted(rivals + claim)) if rivals else claim
    return rivals


def _drop(index: dict[_Where, tuple[_Claim, ...]], where: _Where, key: ObjectKey) -> tuple[_Claim, ...]:
    """Removes the claims of a service from an entry; returns those that remain."""
    rest = tuple([claim for claim in index[where] if claim.key != key])
    if rest:
        index[where] = rest
    else:
        del index[where]
    return rest


def _conflict(frontend: Frontend, winner: ObjectKey) -> Problem:
    where = "node port" if frontend.address is None else f"{frontend.kind.value} {frontend.address} port"
    detail = f"{where} {frontend.port}/{frontend.protocol.name} belongs to Service {winner}: not served for this one"
    return Problem(f"Service {frontend.service_port.service}", "AddressConflict", detail)
