"""Collects from EndpointSlices the endpoints of each service port (docs/semantics.md §3).

Decided here: which slices, ports and addresses count, and which of two entries for the same address and port.
Not decided here: which endpoints get traffic (`select`).
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from msgspec import Struct

from nodeagent.model.addresses import Family, Protocol, family_of, parse_address
from nodeagent.model.frontend import Backend
from nodeagent.model.objects import Endpoint, EndpointHints, EndpointSlice, is_headless_slice, key_of
from nodeagent.model.packed import SEPARATOR, Packed
from nodeagent.model.packed_backends import PackedBackends
from nodeagent.model.problem import Problem
from nodeagent.model.stored_endpoints import StoredEndpoints
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.exposed_addresses import special_use
from nodeagent.proxy.translate.ordinary_addresses import are_ordinary_ipv4
from nodeagent.proxy.translate.service_ports import PROTOCOLS, is_port_number

PortKey = tuple[Family, str, Protocol]
"""Identifies a service port and the slice ports that belong to it: family, port name (may be empty), protocol."""

_FAMILIES = {family.value: family for family in Family}

_SHOWN = 5


class Candidate(Struct, frozen=True, gc=False):
    """One endpoint of one service port; missing conditions have their default values.

    zones, nodes: the topology hints, sorted; empty without hints.
    """

    backend: Backend
    ready: bool
    serving: bool
    terminating: bool
    zones: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class PlainCandidates(Packed[Candidate]):
    """Candidates that are ready and serving, do not terminate and have no hints, as most are. backends: these, sorted, no address twice."""

    __slots__ = ("backends",)

    def __init__(self, backends: PackedBackends) -> None:
        self.backends = backends

    def __len__(self) -> int:
        return len(self.backends)

    def __iter__(self) -> Iterator[Candidate]:
        return iter([Candidate(backend, True, True, False) for backend in self.backends])


def collect_endpoints(
    slices: Iterable[EndpointSlice], context: Context, problems: list[Problem]
) -> dict[PortKey, Sequence[Candidate]]:
    """Returns the union of all slices of one service; each list is sorted by address and port and has no duplicates.

    The order of slices, and of endpoints in them, makes no difference. What is invalid is left out and appended to `problems`.
    """
    found: dict[PortKey, list[Sequence[Candidate]]] = {}
    for endpoint_slice in slices:
        family = _FAMILIES.get(endpoint_slice.address_type)
        if family is None or family not in context.families or not endpoint_slice.ports:
            continue
        if is_headless_slice(endpoint_slice):
            continue
        endpoints, addresses = _usable_endpoints(endpoint_slice, family, problems)
        for port in endpoint_slice.ports:
            if port.name is None or not port.port:
                continue
            protocol = PROTOCOLS.get(port.protocol or "TCP")
            if protocol is None or not is_port_number(port.port):
                problems.append(
                    Problem(
                        f"EndpointSlice {key_of(endpoint_slice)}",
                        "InvalidPort",
                        f"port {port.name!r} ({port.port}/{port.protocol or 'TCP'}) is not usable: ignored",
                    )
                )
                continue
            candidates = _candidates(endpoints, addresses, port.port, context.node_name)
            found.setdefault((family, port.name, protocol), []).append(candidates)
    return {key: _distinct(parts) for key, parts in found.items()}


def _usable_endpoints(
    endpoint_slice: EndpointSlice, family: Family, problems: list[Problem]
) -> tuple[Sequence[Endpoint], list[str]]:
    """Returns the endpoints that have a valid address, to read all but their addresses of, and those addresses, canonical, in the
    same order.

    One regular expression accepts a slice of ordinary IPv4 addresses unchanged. That takes a fifth of the time of parsing
    them one by one, and nearly every slice is like that.
    """
    listed: Sequence[Endpoint] = endpoint_slice.endpoints or ()
    if isinstance(listed, StoredEndpoints):
        endpoints: Sequence[Endpoint] = listed.others
        joined = listed.addresses
        texts = joined.split(SEPARATOR)
    else:
        endpoints = [endpoint for endpoint in listed if endpoint.addresses]
        texts = [endpoint.addresses[0] for endpoint in endpoints if endpoint.addresses]
        joined = SEPARATOR.join(texts)
    if family is Family.IPV4 and joined.count(SEPARATOR) == len(texts) - 1 and are_ordinary_ipv4(joined):
        return endpoints, texts
    usable: list[Endpoint] = []
    addresses: list[str] = []
    refused: list[str] = []
    for endpoint, text in zip(endpoints, texts, strict=True):
        address = parse_address(text)
        if address is None:
            refused.append(f"{text!r} (not an IP address)")
        elif family_of(address) is not family:
            refused.append(f"{text} (not {family.value})")
        elif use := special_use(address):
            refused.append(f"{text} ({use})")
        else:
            usable.append(endpoint)
            addresses.append(address)
    if refused:
        refused.sort()
        shown = ", ".join(refused[:_SHOWN]) + (", …" if len(refused) > _SHOWN else "")
        subject = f"EndpointSlice {key_of(endpoint_slice)}"
        problems.append(Problem(subject, "InvalidAddress", f"{len(refused)} endpoint(s) not used: {shown}"))
    return usable, addresses


def _candidates(endpoints: Sequence[Endpoint], addresses: list[str], port: int, node_name: str) -> Sequence[Candidate]:
    if addresses and len(set(addresses)) == len(addresses) and _all_plain(endpoints):
        here = {
            address for endpoint, address in zip(endpoints, addresses, strict=True) if endpoint.node_name == node_name
        }
        ordered = sorted(addresses)
        local = tuple([place for place, address in enumerate(ordered) if address in here]) if here else ()
        return PlainCandidates(PackedBackends(SEPARATOR.join(ordered), port, local))
    candidates: list[Candidate] = []
    for endpoint, address in zip(endpoints, addresses, strict=True):
        backend = Backend(address, port, endpoint.node_name == node_name)
        conditions = endpoint.conditions
        if conditions is None:
            ready, serving, terminating = True, True, False
        else:
            ready = conditions.ready is not False
            serving = conditions.serving is not False
            terminating = conditions.terminating is True
        hints = endpoint.hints
        if hints is None:
            candidates.append(Candidate(backend, ready, serving, terminating))
        else:
            candidates.append(Candidate(backend, ready, serving, terminating, *_zones_and_nodes(hints)))
    return candidates


def _all_plain(endpoints: Iterable[Endpoint]) -> bool:
    for endpoint in endpoints:
        if endpoint.hints is not None:
            return False
        conditions = endpoint.conditions
        if conditions is not None and (
            conditions.ready is False or conditions.serving is False or conditions.terminating is True
        ):
            return False
    return True


def _zones_and_nodes(hints: EndpointHints) -> tuple[tuple[str, ...], tuple[str, ...]]:
    zones = tuple(sorted([zone.name for zone in hints.for_zones])) if hints.for_zones else ()
    nodes = tuple(sorted([node.name for node in hints.for_nodes])) if hints.for_nodes else ()
    return zones, nodes


def _distinct(parts: list[Sequence[Candidate]]) -> Sequence[Candidate]:
    """Returns one candidate for each address and port, sorted by these. parts: those of each slice.

    A non-terminating entry beats a terminating one. Among equals upstream takes the last one seen; a rule on the
    entries themselves makes the result independent of their order.
    """
    if len(parts) == 1 and isinstance(parts[0], PlainCandidates):
        return parts[0]
    candidates = sorted([candidate for part in parts for candidate in part], key=attrgetter("backend"))
    if len({candidate.backend.address for candidate in candidates}) == len(candidates):
        return candidates
    best: dict[tuple[str, int], Candidate] = {}
    for candidate in candidates:
        place = (candidate.backend.address, candidate.backend.port)
        rival = best.get(place)
        if rival is None or _preference(candidate) < _preference(rival):
            best[place] = candidate
    return list(best.values())


def _preference(candidate: Candidate) -> tuple[bool, bool, bool, bool, tuple[str, ...], tuple[str, ...]]:
    return (
        candidate.terminating,
        not candidate.ready,
        not candidate.serving,
        not candidate.backend.local,
        candidate.zones,
        candidate.nodes,
    )
