"""Every endpoint in the slices of a Service, and why it is used or not.

`translate` decides which endpoints are used; this module names the rule that decided.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from nodeagent.diagnosis.explain.slice_ports import PortMatch, slice_ports
from nodeagent.model.addresses import Family, family_of, parse_address
from nodeagent.model.frontend import Backend, Scope
from nodeagent.model.objects import LABEL_HEADLESS, Endpoint, EndpointSlice, Service, is_headless_slice, key_of
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.exposed_addresses import Exposure, exposures, is_proxied, special_use
from nodeagent.proxy.translate.select import Policies, choose_routes, policies_of
from nodeagent.proxy.translate.service_endpoints import Candidate, PortKey, collect_endpoints
from nodeagent.proxy.translate.service_ports import service_ports


class Reason(Enum):
    """Why an endpoint is used or not."""

    __hash__ = object.__hash__  # Enum's own hashes the name, slowly

    READY = "ready"
    DRAINING = "terminating, still serving, and none is ready"
    NOT_READY = "not ready"
    OTHERS_READY = "serving while terminating, and others are ready"
    GONE = "terminating and no longer serving"
    OTHER_ZONE = "its hints are for another zone"
    OTHER_NODE = "its hints are for another node"
    NOT_LOCAL = "traffic policy Local, and it is not on this node"
    DUPLICATE = "the same address and port is in another entry, which counts"
    UNMATCHED_PORT = "its slice has no port of that name and protocol"
    WRONG_FAMILY = "the Service has no address of that family on this node"
    NO_ADDRESS = "it has no usable address"
    HEADLESS_SLICE = f"its slice has the label {LABEL_HEADLESS}: it is for names only"


USED = frozenset({Reason.READY, Reason.DRAINING})


class Lists(Struct, frozen=True):
    """Which lists of endpoints the addresses of a service port need: that of policy Cluster, that of policy Local."""

    cluster: bool
    local: bool


class Account(Struct, frozen=True):
    """One endpoint for one service port.

    address: canonical where it is one. port: None where the slice has none for the service port. service_port: its name.
    cluster, local: why it is in the list for everyone, or in that of traffic policy Local; None: there is no such list.
    detail: what else a person wants to know.
    """

    address: str
    port: int | None
    family: str
    service_port: str
    protocol: str
    slice: str
    node: str
    zone: str
    conditions: str
    cluster: Reason | None
    local: Reason | None
    detail: str = ""

    @property
    def used(self) -> bool:
        """Whether it is in any list."""
        return self.cluster in USED or self.local in USED

    @property
    def partly(self) -> bool:
        """Whether it is in one list and not in the other."""
        return self.used and not {self.cluster, self.local} <= USED | {None}

    @property
    def reason(self) -> Reason:
        """The reason to report: of the list that has it, else of the list for everyone, else of the local one."""
        if self.cluster is None or (self.local in USED and self.cluster not in USED):
            assert self.local is not None, "there is at least one list"
            return self.local
        return self.cluster


def lists_of(policies: Policies, exposure: Exposure | None, node_port: int) -> Lists:
    """Returns the lists of one service port in one family. exposure: None if the Service has no address of that family."""
    external = exposure is not None and bool(exposure.external_ips or exposure.load_balancer_ips or node_port)
    return Lists(
        cluster=not policies.internal_local or external,
        local=policies.internal_local or (policies.external_local and external),
    )


def account_endpoints(service: Service, slices: Collection[EndpointSlice], context: Context) -> tuple[Account, ...]:
    """Returns all endpoints in the order of slices. An endpoint that no service port can use is reported once."""
    key = key_of(service)
    if not is_proxied(service):
        return ()
    exposed = exposures(service, key, context, [])
    policies = policies_of(service.spec)
    chosen = _Chosen(collect_endpoints(slices, context, []), policies, context)
    ports = service_ports(service, key, [])
    found: list[Account] = []
    for one in slices:
        origin = _Origin(str(key_of(one)), one.address_type, headless=is_headless_slice(one))
        family = next((each for each in exposed if each.value == one.address_type), None)
        exposure = None if family is None else exposed[family]
        lists = [lists_of(policies, exposure, port.node_port) for port in ports] or [lists_of(policies, None, 0)]
        found_ports = slice_ports(one, [port.name for port in ports]) or [PortMatch("", "", (), ())]
        keys = [match.key(family) if family is not None and match.numbers else None for match in found_ports]
        matches = tuple(zip(found_ports, lists, keys, strict=True))
        for endpoint in one.endpoints or ():
            found.extend(_accounts(origin, endpoint, family, matches, chosen))
    return tuple(found)


class _Origin(NamedTuple):
    """A slice: its name, its type of addresses, and whether it is for names only."""

    name: str
    address_type: str
    headless: bool


def _accounts(
    origin: _Origin,
    endpoint: Endpoint,
    family: Family | None,
    matches: Sequence[tuple[PortMatch, Lists, PortKey | None]],
    chosen: "_Chosen",
) -> Iterator[Account]:
    """Yields the account of an endpoint for each port.
    matches: with the keys of their endpoints in the translation, where the slice has the port."""
    text = endpoint.addresses[0] if endpoint.addresses else ""
    usable = text in chosen.addresses
    address = text if usable else parse_address(text)
    use = None if usable or address is None else special_use(address)
    reason = None
    if origin.headless:
        reason = Reason.HEADLESS_SLICE
    elif family is None:
        reason = Reason.WRONG_FAMILY
    elif address is None or family_of(address) is not family or use:
        reason = Reason.NO_ADDRESS
    conditions = conditions_of(endpoint)
    for match, lists, key in matches:
        detail = ""
        places: list[tuple[int | None, Reason, Reason]]
        if reason is None and key is not None and address is not None:
            places = [(number, *chosen.reasons(key, address, number, endpoint)) for number in match.numbers]
        else:
            why = reason or Reason.UNMATCHED_PORT
            places = [(None, why, why)]
            if reason is None:
                detail = f"it has {', '.join(match.others) or 'none at all'}"
            elif reason is Reason.NO_ADDRESS:
                detail = use or ""
        for number, cluster, local in places:
            yield Account(
                address or text or "none",
                number,
                origin.address_type,
                match.name,
                match.protocol,
                origin.name,
                endpoint.node_name or "",
                endpoint.zone or "",
                conditions,
                cluster if lists.cluster else None,
                local if lists.local else None,
                detail,
            )
        if reason is not None:
            return


def conditions_of(endpoint: Endpoint) -> str:
    """Returns the three conditions in words, as the translation reads them (docs/semantics.md 25)."""
    conditions = endpoint.conditions
    if conditions is None:
        return "ready"
    words = ["ready" if conditions.ready is not False else "not ready"]
    if conditions.terminating:
        words.append("terminating")
        words.append("serving" if conditions.serving is not False else "not serving")
    return ", ".join(words)


class _Chosen:
    """The lists that the translation chose for each service port. addresses: the usable ones, of all ports."""

    def __init__(self, candidates: Mapping[PortKey, Sequence[Candidate]], policies: Policies, context: Context) -> None:
        self._candidates = candidates
        self._policies = policies
        self._context = context
        self._ports: dict[PortKey, _Port] = {}
        self.addresses = frozenset([one.backend.address for those in candidates.values() for one in those])

    def reasons(self, key: PortKey, address: str, number: int, endpoint: Endpoint) -> tuple[Reason, Reason]:
        """Returns why an entry is or is not in the list for everyone, and in the local one."""
        port = self._ports.get(key)
        if port is None:
            port = self._ports[key] = _Port(self._candidates[key], self._policies, self._context)
        winner = port.unreported.get((address, number))
        if winner is None or not _is(winner, endpoint, self._context):
            return Reason.DUPLICATE, Reason.DUPLICATE
        del port.unreported[address, number]
        return port.why(winner, self._context), port.why_local(winner)


class _Port:
    """The endpoints of one service port in one family: the lists they are in, and those for which no entry was reported yet."""

    def __init__(self, candidates: Sequence[Candidate], policies: Policies, context: Context) -> None:
        self.unreported = {(one.backend.address, one.backend.port): one for one in candidates}
        routes = choose_routes(candidates, policies, context)
        self._cluster = self._local = frozenset[Backend]()
        for route in (routes.internal, routes.external, routes.short_circuit):
            if route is None:
                continue
            if route.scope is Scope.CLUSTER:
                self._cluster = frozenset(route.backends)
            else:
                self._local = frozenset(route.backends)
        ready = [one for one in candidates if one.ready]
        self._by_node = all(one.nodes for one in ready) and any(context.node_name in one.nodes for one in ready)

    def why(self, one: Candidate, context: Context) -> Reason:
        if one.backend in self._cluster:
            return Reason.READY if one.ready else Reason.DRAINING
        if not one.ready:
            return _why_not_ready(one)
        return Reason.OTHER_NODE if self._by_node and context.node_name not in one.nodes else Reason.OTHER_ZONE

    def why_local(self, one: Candidate) -> Reason:
        if one.backend in self._local:
            return Reason.READY if one.ready else Reason.DRAINING
        return _why_not_ready(one) if one.backend.local else Reason.NOT_LOCAL


def _is(winner: Candidate, endpoint: Endpoint, context: Context) -> bool:
    """Returns whether the candidate was made from this entry, or from one that is equal in all relevant fields."""
    conditions, hints = endpoint.conditions, endpoint.hints
    return (
        winner.backend.local == (endpoint.node_name == context.node_name)
        and winner.ready == (conditions is None or conditions.ready is not False)
        and winner.serving == (conditions is None or conditions.serving is not False)
        and winner.terminating == (conditions is not None and conditions.terminating is True)
        and winner.zones == (tuple(sorted(zone.name for zone in (hints.for_zones or ()))) if hints else ())
        and winner.nodes == (tuple(sorted(node.name for node in (hints.for_nodes or ()))) if hints else ())
    )


def _why_not_ready(one: Candidate) -> Reason:
    if not one.terminating:
        return Reason.NOT_READY
    return Reason.OTHERS_READY if one.serving else Reason.GONE
