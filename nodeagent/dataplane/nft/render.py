"""One service's frontends → the elements that put them into effect, in one family (pure).

Slots: the N backends of a route hold slots 0..N-1 in any order. Which order is decided here against the image that is
programmed: an endpoint that stays keeps its slot, so one endpoint more or less is one slot more, or one moved and the
last one gone. docs/decisions/0002 proves why no order that depends on the endpoints alone can do that.
"""

from collections.abc import Iterable, Iterator, Sequence

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.affinity import affinity_id
from nodeagent.dataplane.nft.classes import CLUSTER_SCOPE_OFFSET, DISCARD, MAX_BACKENDS, REFUSE, PickClass, pick_class
from nodeagent.dataplane.nft.image import (
    Elements,
    TableImage,
    class_of,
    comment_text,
    endpoint_value,
    frontend_key,
    node_port_key,
    packed_class,
)
from nodeagent.model.addresses import Family, pack_address, parse_network
from nodeagent.model.frontend import Frontend, FrontendKind, Route, ServiceState, Verdict
from nodeagent.model.problem import Problem

_SLOTS = tuple(packed_class(slot) for slot in range(256))
_CLUSTER_SLOTS = tuple(packed_class(CLUSTER_SCOPE_OFFSET + slot) for slot in range(256))


def slot_key(slot: int, *, cluster_scope: bool) -> bytes:
    """The slot field of a backends key."""
    if slot < 256:
        return _CLUSTER_SLOTS[slot] if cluster_scope else _SLOTS[slot]
    return packed_class(slot + (CLUSTER_SCOPE_OFFSET if cluster_scope else 0))


def assign_slots(before: Sequence[bytes], wanted: Iterable[bytes]) -> list[bytes]:
    """Endpoints by slot: those that had a slot below the new count keep it, the others fill the holes.

    before: endpoints by slot as programmed now. wanted: without duplicates. With nothing before, the order is sorted.
    """
    if not before:
        return sorted(wanted)
    missing = set(wanted)
    count = len(missing)
    slots: list[bytes | None] = [None] * count
    for slot, endpoint in enumerate(before[:count]):
        if endpoint in missing:
            slots[slot] = endpoint
            missing.remove(endpoint)
    if not missing:
        return [endpoint for endpoint in slots if endpoint is not None]
    filler = iter(sorted(missing))
    return [next(filler) if endpoint is None else endpoint for endpoint in slots]


def programmed_slots(
    programmed: TableImage, frontends: str, backends: str, key: bytes, *, cluster_scope: bool
) -> list[bytes]:
    """The endpoints by slot that a frontend has in the programmed image; empty when it has none."""
    value = programmed[frontends].get(key)
    if value is None:
        return []
    picked = pick_class(class_of(value))
    if picked is None:
        return []
    held = programmed[backends]
    slots = (held.get(key + slot_key(slot, cluster_scope=cluster_scope)) for slot in range(picked.count))
    return [endpoint for endpoint in slots if endpoint is not None]


def programmed_keys(programmed: TableImage, backends: str) -> Iterator[bytes]:
    """Every key that the frontends' classes lead to in `backends`, which is one of the two maps of endpoints."""
    node_ports = backends == schema.NODEPORT_BACKENDS
    wide = schema.NODEPORTS if node_ports else schema.FRONTENDS
    narrow = schema.NODEPORTS_CLUSTER_SCOPE if node_ports else schema.FRONTENDS_CLUSTER_SCOPE
    for frontends, cluster_scope in ((wide, False), (narrow, True)):
        for key, value in programmed[frontends].items():
            picked = pick_class(class_of(value))
            if picked is not None:
                for slot in range(picked.count):
                    yield key + slot_key(slot, cluster_scope=cluster_scope)


def render_service(state: ServiceState, family: Family, programmed: TableImage) -> TableImage:
    """All elements of one service in one family; sets it has nothing in are absent."""
    image: TableImage = {}
    for address in state.cluster_ips:
        if (":" in address) == (family is Family.IPV6):
            image.setdefault(schema.CLUSTER_IPS, {})[pack_address(address)] = b""
    for frontend in state.frontends:
        if frontend.family is family:
            _render_frontend(frontend, programmed, image)
    return image


def too_many_backends(state: ServiceState) -> tuple[Problem, ...]:
    """A Problem for each frontend with more endpoints than slots; the first MAX_BACKENDS of them are used."""
    return tuple(
        Problem(
            f"Service {state.key}",
            "TooManyEndpoints",
            f"{frontend.service_port}: {len(route.backends)} endpoints, only the first {MAX_BACKENDS} are used",
        )
        for frontend in state.frontends
        for route in (frontend.route, frontend.short_circuit)
        if route is not None and len(route.backends) > MAX_BACKENDS
    )


def _render_frontend(frontend: Frontend, programmed: TableImage, image: TableImage) -> None:
    node_port = frontend.address is None
    if frontend.address is None:
        key = node_port_key(frontend.protocol, frontend.port)
    else:
        key = frontend_key(frontend.address, frontend.protocol, frontend.port)
    _render_route(frontend, frontend.route, key, programmed, image, cluster_scope=False)
    if frontend.short_circuit is not None:
        _render_route(frontend, frontend.short_circuit, key, programmed, image, cluster_scope=True)
    if frontend.masquerade and frontend.kind is not FrontendKind.CLUSTER_IP:
        name = schema.MASQUERADE_NODEPORTS if node_port else schema.MASQUERADE_FRONTENDS
        image.setdefault(name, {})[key] = b""
    if frontend.affinity_seconds is not None:
        name = schema.NODEPORT_STICKY_TIMEOUTS if node_port else schema.STICKY_TIMEOUTS
        image.setdefault(name, {})[key] = packed_class(frontend.affinity_seconds)
    if frontend.allowed_sources is not None:
        image.setdefault(schema.GUARDED, {})[key] = b""
        allowed = image.setdefault(schema.ALLOWED_SOURCES, {})
        for cidr in frontend.allowed_sources:
            network = parse_network(cidr)
            if network is not None:
                allowed[key + network.network_address.packed + key + network.broadcast_address.packed] = b""


def _render_route(
    frontend: Frontend, route: Route, key: bytes, programmed: TableImage, image: TableImage, *, cluster_scope: bool
) -> None:
    node_port = frontend.address is None
    if node_port:
        frontends = schema.NODEPORTS_CLUSTER_SCOPE if cluster_scope else schema.NODEPORTS
        ids = schema.NODEPORT_STICKY_IDS_CLUSTER_SCOPE if cluster_scope else schema.NODEPORT_STICKY_IDS
        backends = schema.NODEPORT_BACKENDS
    else:
        frontends = schema.FRONTENDS_CLUSTER_SCOPE if cluster_scope else schema.FRONTENDS
        ids = schema.STICKY_IDS_CLUSTER_SCOPE if cluster_scope else schema.STICKY_IDS
        backends = schema.BACKENDS
    targets = image.setdefault(frontends, {})
    name = b"" if cluster_scope else comment_text(frontend.service_port)
    if not route.backends:
        targets[key] = packed_class(REFUSE if route.otherwise is Verdict.REFUSE else DISCARD) + name
        return
    endpoints = [endpoint_value(backend.address, backend.port) for backend in route.backends[:MAX_BACKENDS]]
    before = programmed_slots(programmed, frontends, backends, key, cluster_scope=cluster_scope)
    slots = _CLUSTER_SLOTS if cluster_scope else _SLOTS
    by_slot = assign_slots(before, endpoints)
    held = image.setdefault(backends, {})
    if len(by_slot) <= len(slots):
        for slot, endpoint in zip(slots, by_slot, strict=False):
            held[key + slot] = endpoint
    else:
        for number, endpoint in enumerate(by_slot):
            held[key + slot_key(number, cluster_scope=cluster_scope)] = endpoint
    sticky = frontend.affinity_seconds is not None
    targets[key] = packed_class(PickClass(len(by_slot), cluster_scope, node_port, sticky).number) + name
    if sticky:
        image.setdefault(ids, {})[key] = packed_class(affinity_id(frontend.service_port, route.scope))
    _render_hairpin(route, image.setdefault(schema.HAIRPIN, {}))


def _render_hairpin(route: Route, hairpin: Elements) -> None:
    for backend in route.backends:
        if backend.local:
            packed = pack_address(backend.address)
            hairpin[packed + packed] = b""
