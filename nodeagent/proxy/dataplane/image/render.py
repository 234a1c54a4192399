"""Renders one service's frontends to the elements that put them into effect, in one family (pure).

Slots: the N backends of a route hold slots 0..N-1 in any order. That order is decided here against the image that is
programmed: an endpoint that stays keeps its slot, so adding an endpoint adds one slot, and removing one moves at most one
other. docs/decisions/0002 proves why no order that depends on the endpoints alone can do that.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nodeagent.model.addresses import Family, pack_address, parse_network
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, ServiceState, Unserved
from nodeagent.model.packed_backends import local_addresses
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.image.affinity import affinity_id
from nodeagent.proxy.dataplane.image.blocks import cluster_ip_block
from nodeagent.proxy.dataplane.image.image import (
    CLASS_LENGTH,
    Elements,
    ReadableImage,
    TableImage,
    class_of,
    comment_text,
    frontend_key,
    node_port_key,
    packed_class,
    service_name,
)
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import (
    BY_SOURCE,
    BY_SOURCE_NODE_PORT,
    DISCARD,
    GUARDED,
    MAX_BACKENDS,
    REFUSE,
    PickClass,
    pick_class,
)
from nodeagent.proxy.dataplane.program.picking import sticky_ids

_FRONTEND_MAPS = (
    schema.FRONTENDS,
    schema.GUARDED_FRONTENDS,
    schema.FRONTENDS_CLUSTER_SCOPE,
    schema.FRONTENDS_LOCAL_SCOPE,
)
_NODEPORT_MAPS = (schema.NODEPORTS, schema.NODEPORTS_CLUSTER_SCOPE, schema.NODEPORTS_LOCAL_SCOPE)
EndpointLists = Mapping[bytes, list[bytes]]
"""Key of a list's first slot → its endpoints by slot."""
_SLOTS = tuple(packed_class(slot) for slot in range(256))


def slot_keys(picked: PickClass) -> Sequence[bytes]:
    """Returns the slot fields of the backends keys of a class, in order."""
    return slots_from(picked.first_slot, picked.count)


def slots_from(first: int, count: int) -> Sequence[bytes]:
    """Returns the fields of so many slots, in order."""
    if first == 0 and count <= len(_SLOTS):
        return _SLOTS[:count]
    return [packed_class(first + slot) for slot in range(count)]


def assign_slots(before: list[bytes], wanted: Iterable[bytes]) -> list[bytes]:
    """Returns the endpoints by slot: those that had a slot below the new count keep it, the others fill the holes.

    before: endpoints by slot as programmed now; another process may have written one into several slots. wanted: without duplicates. If
    `before` is empty, the order is sorted.
    """
    if not before:
        return sorted(wanted)
    if before == wanted:
        return before
    missing = set(wanted)
    count = len(missing)
    if len(before) == count and missing == set(before):
        return before
    slots: list[bytes | None] = [None] * count
    for slot, endpoint in enumerate(before[:count]):
        if endpoint in missing:
            slots[slot] = endpoint
            missing.remove(endpoint)
    if not missing:
        return [endpoint for endpoint in slots if endpoint is not None]
    filler = iter(sorted(missing))
    return [next(filler) if endpoint is None else endpoint for endpoint in slots]


def route_class(programmed: ReadableImage, key: bytes, *, node_port: bool, cluster_scope: bool) -> bytes | None:
    """Returns the class of one of a frontend's lists in the programmed image; skips the classes that look at the source."""
    if cluster_scope:
        return programmed[schema.NODEPORTS_CLUSTER_SCOPE if node_port else schema.FRONTENDS_CLUSTER_SCOPE].get(key)
    value = programmed[schema.NODEPORTS if node_port else schema.FRONTENDS].get(key)
    if value is not None and class_of(value) == GUARDED:
        value = programmed[schema.GUARDED_FRONTENDS].get(key)
    if value is not None and class_of(value) in {BY_SOURCE, BY_SOURCE_NODE_PORT}:
        value = programmed[schema.NODEPORTS_LOCAL_SCOPE if node_port else schema.FRONTENDS_LOCAL_SCOPE].get(key)
    return value


def programmed_slots(programmed: ReadableImage, key: bytes, *, node_port: bool, cluster_scope: bool) -> list[bytes]:
    """Returns the endpoints by slot that a frontend has in the programmed image; empty if it has none."""
    return programmed_list(programmed, {}, key, node_port=node_port, cluster_scope=cluster_scope)[0]


def programmed_list(
    programmed: ReadableImage, read: EndpointLists, key: bytes, *, node_port: bool, cluster_scope: bool
) -> tuple[list[bytes], bool]:
    """Returns the same, and whether that is one in each slot. read: lists of the programmed image that need not be looked up."""
    value = route_class(programmed, key, node_port=node_port, cluster_scope=cluster_scope)
    picked = None if value is None else pick_class(class_of(value))
    if picked is None:
        return [], False
    slots, same_list = slot_keys(picked), picked.cluster_scope == cluster_scope
    known = read.get(key + slots[0])
    if known is not None and len(known) == picked.count:
        return known, same_list
    get = programmed[schema.NODEPORT_BACKENDS if node_port else schema.BACKENDS].get
    found = [endpoint for slot in slots if (endpoint := get(key + slot)) is not None]
    return found, same_list and len(found) == picked.count


def image_of_services(programmed: ReadableImage, services: Collection[str]) -> TableImage:
    """Returns the part of all frontend maps that belongs to these Services (`namespace/name`), by the name in the frontends."""
    own = {name.encode() for name in services}
    found: TableImage = {}
    for maps in (_FRONTEND_MAPS, _NODEPORT_MAPS):
        named = programmed[maps[0]]
        keys = {key for key, value in named.items() if service_name(value) in own}
        for name in maps:
            found[name] = {key: value for key, value in programmed[name].items() if key in keys}
    return found


def programmed_keys(programmed: ReadableImage, backends: str) -> Iterator[bytes]:
    """Yields every key that the frontends' classes lead to in `backends`, which is one of the two maps of endpoints."""
    for key, slots in _programmed_lists(programmed, backends):
        yield from [key + slot for slot in slots]


def endpoint_lists(programmed: ReadableImage, backends: str, endpoints: Elements) -> EndpointLists:
    """Returns the endpoints of each list. endpoints: exactly those of `programmed_keys`, in that order."""
    values, at = list(endpoints.values()), 0
    found: dict[bytes, list[bytes]] = {}
    for key, slots in _programmed_lists(programmed, backends):
        behind = at + len(slots)
        found[key + slots[0]] = values[at:behind]
        at = behind
    return found


def _programmed_lists(programmed: ReadableImage, backends: str) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """Yields the frontend and the slots of each list. Frontends have few different classes, which are looked up once each."""
    by_class: dict[bytes, Sequence[bytes]] = {}
    for name in _NODEPORT_MAPS if backends == schema.NODEPORT_BACKENDS else _FRONTEND_MAPS:
        for key, value in programmed[name].items():
            number = value[:CLASS_LENGTH]
            slots = by_class.get(number)
            if slots is None:
                picked = pick_class(class_of(number))
                slots = by_class[number] = () if picked is None else slot_keys(picked)
            if slots:
                yield key, slots


class SlotList(NamedTuple):
    """The endpoints among which one route of one frontend picks: in a map, under the frontend's key and their slots."""

    key: bytes
    node_port: bool
    cluster_scope: bool
    sticky: bool

    @property
    def name(self) -> str:
        """The name of the map."""
        return schema.NODEPORT_BACKENDS if self.node_port else schema.BACKENDS


class MemberList(NamedTuple):
    """Endpoints that are elements of a set, after the frontend's key."""

    key: bytes
    name: str


class Rendering(NamedTuple):
    """One service in one family. lists: its endpoints by list, from which elements are made later; they are not in `elements`."""

    elements: TableImage
    lists: dict[SlotList | MemberList, Sequence[Backend]]


def render_service(state: ServiceState, family: Family) -> Rendering:
    """Returns everything of one service in one family; sets in which it has no element are absent."""
    rendering = Rendering({}, {})
    routes: dict[int, Route] = {}
    for address in state.cluster_ips:
        if (":" in address) == (family is Family.IPV6):
            packed = pack_address(address)
            rendering.elements.setdefault(schema.CLUSTER_IPS, {})[packed] = b""
            rendering.elements.setdefault(schema.CLUSTER_IP_BLOCKS, {})[cluster_ip_block(packed)] = b""
    for frontend in state.frontends:
        if frontend.family is family:
            _render_frontend(frontend, rendering)
            for route in (frontend.route, frontend.short_circuit):
                if route is not None:
                    routes[id(route)] = route
    if hairpin := _hairpin(routes.values()):
        rendering.elements[schema.HAIRPIN] = hairpin
    return rendering


def too_many_backends(state: ServiceState) -> tuple[Problem, ...]:
    """Returns a Problem for each frontend with more endpoints than slots; the first MAX_BACKENDS of them are used."""
    found: list[Problem] = []
    for frontend in state.frontends:
        for route in (frontend.route, frontend.short_circuit):
            if route is not None and len(route.backends) > MAX_BACKENDS:
                detail = (
                    f"{frontend.service_port}: {len(route.backends)} endpoints, only the first {MAX_BACKENDS} are used"
                )
                found.append(Problem(f"Service {state.key}", "TooManyEndpoints", detail))
    return tuple(found)


def _render_frontend(frontend: Frontend, rendering: Rendering) -> None:
    """Adds one frontend. The classes that look at the source are nested: first the allowed ranges, then the choice of a list."""
    image = rendering.elements
    node_port = frontend.address is None
    if frontend.address is None:
        key = node_port_key(frontend.protocol, frontend.port)
    else:
        key = frontend_key(frontend.address, frontend.protocol, frontend.port)
    number = _render_route(frontend, frontend.route, key, rendering, cluster_scope=False)
    if frontend.short_circuit is not None:
        wide = _render_route(frontend, frontend.short_circuit, key, rendering, cluster_scope=True)
        cluster_scope = schema.NODEPORTS_CLUSTER_SCOPE if node_port else schema.FRONTENDS_CLUSTER_SCOPE
        local_scope = schema.NODEPORTS_LOCAL_SCOPE if node_port else schema.FRONTENDS_LOCAL_SCOPE
        image.setdefault(cluster_scope, {})[key] = packed_class(wide)
        image.setdefault(local_scope, {})[key] = packed_class(number)
        number = BY_SOURCE_NODE_PORT if node_port else BY_SOURCE
    if frontend.allowed_sources is not None:
        _render_sources(frontend.allowed_sources, key, image)
        image.setdefault(schema.GUARDED_FRONTENDS, {})[key] = packed_class(number)
        number = GUARDED
    targets = image.setdefault(schema.NODEPORTS if node_port else schema.FRONTENDS, {})
    targets[key] = packed_class(number) + comment_text(frontend.service_port)
    if node_port:
        _render_node_port_endpoints(frontend, key, rendering)
    elif frontend.masquerade and frontend.kind is not FrontendKind.CLUSTER_IP:
        image.setdefault(schema.MASQUERADE_FRONTENDS, {})[key] = b""
    if frontend.affinity_seconds is not None:
        name = schema.NODEPORT_STICKY_TIMEOUTS if node_port else schema.STICKY_TIMEOUTS
        image.setdefault(name, {})[key] = packed_class(frontend.affinity_seconds)


def _render_sources(allowed_sources: Iterable[str], key: bytes, image: TableImage) -> None:
    allowed = image.setdefault(schema.ALLOWED_SOURCES, {})
    for cidr in allowed_sources:
        network = parse_network(cidr)
        if network is not None:
            allowed[key + network.network_address.packed + key + network.broadcast_address.packed] = b""


def _render_node_port_endpoints(frontend: Frontend, key: bytes, rendering: Rendering) -> None:
    """Adds the endpoints by which postrouting recognises connections that came through a node port."""
    if not frontend.masquerade and frontend.short_circuit is None:
        return
    name = schema.MASQUERADE_NODEPORTS if frontend.masquerade else schema.LOCAL_POLICY_NODEPORTS
    backends = _used(frontend.route)
    if frontend.short_circuit is not None:
        backends = tuple(dict.fromkeys((*_used(frontend.short_circuit), *backends)))
    if backends:
        rendering.lists[MemberList(key, name)] = backends


def _render_route(frontend: Frontend, route: Route, key: bytes, rendering: Rendering, *, cluster_scope: bool) -> int:
    node_port = frontend.address is None
    count = min(len(route.backends), MAX_BACKENDS)
    if not count:
        return REFUSE if route.otherwise is Unserved.REFUSE else DISCARD
    sticky = frontend.affinity_seconds is not None
    backends = route.backends if count < MAX_BACKENDS else route.backends[:count]
    rendering.lists[SlotList(key, node_port, cluster_scope, sticky)] = backends
    if sticky:
        ids = sticky_ids(node_port=node_port, cluster_scope=cluster_scope)
        rendering.elements.setdefault(ids, {})[key] = packed_class(affinity_id(frontend.service_port, route.scope))
    return PickClass(count, cluster_scope, node_port, sticky).number


def _used(route: Route) -> Sequence[Backend]:
    return route.backends if len(route.backends) <= MAX_BACKENDS else route.backends[:MAX_BACKENDS]


def _hairpin(routes: Iterable[Route]) -> Elements:
    return dict.fromkeys(
        hairpin_keys([address for route in routes for address in local_addresses(route.backends)]), b""
    )


def hairpin_keys(addresses: Iterable[str]) -> dict[bytes, None]:
    """Returns the keys of endpoints on this node, which may connect to themselves through the service, each once."""
    return {packed + packed: None for packed in map(pack_address, addresses)}
