"""The desired elements of one family's table: the sum of all services and the node's own sets (pure, incremental)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from nodeagent.model.addresses import Family, family_of
from nodeagent.model.frontend import NamesHere, NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.image.affinity import AffinityIds
from nodeagent.proxy.dataplane.image.blocks import OtherAddresses
from nodeagent.proxy.dataplane.image.earlier import EarlierElements
from nodeagent.proxy.dataplane.image.held_service import (
    HeldService,
    RenderedService,
    count_elements,
    flat_keys,
    has_same_keys,
    keys_in,
)
from nodeagent.proxy.dataplane.image.image import (
    Elements,
    ReadableImage,
    TableImage,
    comment_of,
    empty_image,
    interval_elements,
    ping_elements,
)
from nodeagent.proxy.dataplane.image.names_elements import names_elements
from nodeagent.proxy.dataplane.image.new_routes import with_new_routes
from nodeagent.proxy.dataplane.image.plain_services import PlainService, plain_class, plain_service
from nodeagent.proxy.dataplane.image.render import EndpointLists, Rendering, SlotList, render_service
from nodeagent.proxy.dataplane.image.slots import Held, new_list, same_slots
from nodeagent.proxy.dataplane.image.timeouts import AffinityTimeouts
from nodeagent.proxy.dataplane.program import schema

_SHARED = frozenset({schema.CLUSTER_IPS, schema.CLUSTER_IP_BLOCKS, schema.HAIRPIN})
"""Sets in which several services may have the same element; in all others a key belongs to one service."""

_TAKEN_OVER = (schema.FRONTENDS, schema.BACKENDS, schema.NODEPORTS, schema.NODEPORT_BACKENDS, schema.CLUSTER_IPS)
"""Sets with most of the elements, which only services fill, and in any order."""

MOST_FORMS = 1000


class DesiredImage:
    """The desired image of one family, and from which service each element comes.

    programmed: a live view of what the image was at the last `settle`; before the first it was empty. The elements that changed since then
    are held, not the whole image again. is_new: nothing was ever put into it. unrendered: services whose rendering failed, which is a
    defect of this program; all others are rendered.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.image: TableImage = empty_image(schema.DATA_SETS)
        self._held: dict[ObjectKey, HeldService] = {}
        self._forms: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Each `sets` of what is held, by itself: services of the same form share it."""
        self._shared: dict[str, Counter[bytes]] = {name: Counter() for name in _SHARED}
        self._others = OtherAddresses(family)
        self._before: dict[str, dict[bytes, bytes | None]] = {name: {} for name in self.image}
        """By set: the value at the last `settle` of each key that changed since then; None: it was absent."""
        self._programmed = self._before_changes()
        self._settled = False
        self._found: TableImage | None = None
        self._lists: EndpointLists = {}
        """What was taken over, until the first update."""
        self.is_new = True
        self._node: NodeState | None = None
        self.affinity = AffinityIds(family)
        self.timeouts = AffinityTimeouts()
        self.unrendered: dict[ObjectKey, Problem] = {}

    def take_over(self, found: TableImage, lists: EndpointLists) -> None:
        """Begins with what the kernel holds, which is programmed then: a service whose elements are all there adds none. What no service
        has is removed by the first `update`, which has to be of all services. The dicts belong to the image from now on. lists: some or all
        lists of endpoints in it.

        Small sets are built anew, in the order of rendering, and what was found in them counts as changed.
        """
        for name in self.image:
            if name in _TAKEN_OVER:
                self.image[name] = found[name]
            else:
                self._before[name] = dict(found[name])
        self._programmed = self._before_changes()
        self._found, self._lists = found, lists
        self._settled, self.is_new = True, False

    def _before_changes(self) -> ReadableImage:
        """Returns a live view of the image without what changed since the last `settle`."""
        return {name: EarlierElements(elements, self._before[name]) for name, elements in self.image.items()}

    def update(self, changes: Mapping[ObjectKey, ServiceState | None], programmed: ReadableImage) -> None:
        """Replaces the elements of some services (None: the service is gone).

        All old elements are removed before new ones are added: a frontend that passes from one service to another is in both.
        A list of endpoints that stays is amended, so that its cost is that of what changes in it; a new list takes over the slots
        that it has in the programmed image. If a service keeps all its keys, only values are replaced.
        """
        self.is_new = False
        if self._found is not None:
            # The view of it takes a call for each key; no key is written before its service reads it.
            programmed = self._found
        rendered: dict[ObjectKey, RenderedService] = {}
        new: list[ObjectKey] = []
        touched: set[bytes] = set()
        for key, state in changes.items():
            before = self._held.get(key)
            if before is None:
                new.append(key)
                continue
            if self._replace_routes(before, state):
                self._held[key] = HeldService(before.sets, before.keys, before.lists, state)
                continue
            ready = self._render(key, state, before, programmed)
            if has_same_keys(before, ready):
                self._replace_values(ready.rendering.elements)
                self._held[key] = HeldService(before.sets, before.keys, before.lists, state)
            else:
                rendered[key] = ready
                touched |= self._retire(self._held.pop(key), ready)
        for key, ready in rendered.items():
            touched |= self._install(key, changes[key], ready)
        for key in new:  # one by one: at the first pass they are all services
            state = changes[key]
            plain = self._plain(key, state)
            if plain is None:
                touched |= self._install(key, state, self._render(key, state, HeldService(), programmed))
            else:
                touched.update(self._install_plain(key, state, plain, programmed))
        if self._found is not None:
            self._remove_what_no_service_has()
            self._found, self._lists = None, {}
        if touched:
            self._look_at_blocks(touched)

    def _replace_routes(self, held: HeldService, state: ServiceState | None) -> bool:
        """Replaces the endpoints of a service of which nothing else differs from what was rendered; returns False if more may differ."""
        before = held.state
        frontends = None if before is None or state is None else with_new_routes(before, state, self.family)
        if frontends is None:
            return False
        values = self.image[schema.FRONTENDS]
        changed: Elements = {}
        try:
            for listed, frontend in zip(held.lists, frontends, strict=True):
                backends, key = frontend.route.backends, listed.where.key
                self._put(listed.where.name, listed.amend(backends))
                value = plain_class(len(backends)) + comment_of(values[key])
                if value != values[key]:
                    changed[key] = value
        except Exception:  # noqa: BLE001 - it is met again when the service is rendered, and reported there
            return False
        self._add(schema.FRONTENDS, changed)
        return True

    def _render(
        self, key: ObjectKey, state: ServiceState | None, held: HeldService, programmed: ReadableImage
    ) -> RenderedService:
        """Renders the new state of a service. Lists that stay are amended in the image already."""
        self.unrendered.pop(key, None)
        before = {listed.where: listed for listed in held.lists} if held.lists else {}
        lists: list[Held] = []
        new: list[Held] = []
        try:
            admitted = self.timeouts.admit(key, self.affinity.admit(key, state))
            rendering = Rendering({}, {}) if admitted is None else render_service(admitted, self.family)
            for where, backends in rendering.lists.items():
                listed = before.get(where)
                if listed is None:
                    listed, is_programmed = new_list(where, backends, programmed, self._lists)
                    if not (is_programmed and self._found is not None):
                        new.append(listed)
                else:
                    self._put(where.name, listed.amend(backends))
                lists.append(listed)
        except Exception as error:  # noqa: BLE001 - no error of one service may stop the others
            self.timeouts.admit(key, self.affinity.admit(key, None))
            detail = f"internal error, the service is left out in {self.family.value}: {type(error).__name__}: {error}"
            self.unrendered[key] = Problem(f"Service {key}", "RenderingFailed", detail)
            return RenderedService(Rendering({}, {}))
        return RenderedService(rendering, tuple(lists), tuple(new))

    def _replace_values(self, wanted: TableImage) -> None:
        for name, elements in wanted.items():
            present = self.image[name]
            changed = {key: value for key, value in elements.items() if present[key] != value}
            if changed:
                self._remember(name, changed)
                present.update(changed)

    def _remember(self, name: str, keys: Iterable[bytes]) -> None:
        """Keeps the present values of keys that are about to change."""
        if not self._settled:
            return
        before, present = self._before[name], self.image[name]
        for key in keys:
            if key not in before:
                before[key] = present.get(key)

    def _add(self, name: str, elements: Mapping[bytes, bytes]) -> None:
        """Writes elements of a map or set."""
        present = self.image[name]
        if self._found is not None and name in _TAKEN_OVER:
            elements = {key: value for key, value in elements.items() if present.get(key) != value}
        self._remember(name, elements)
        present.update(elements)

    def _put(self, name: str, changed: Mapping[bytes, bytes | None]) -> None:
        """Writes elements of a map or set (None: removes the element)."""
        self._remember(name, changed)
        elements = self.image[name]
        for key, value in changed.items():
            if value is None:
                del elements[key]
            else:
                elements[key] = value

    def set_node(self, node: NodeState) -> None:
        """Replaces the node's own sets. Those about DNS queries depend on the Services: update these first."""
        if node is self._node and node.names == NamesHere():
            return
        self._node = node
        wanted = {
            schema.SERVICE_CIDRS: interval_elements(node.service_cidrs, self.family),
            schema.POD_CIDRS: interval_elements(node.pod_cidrs, self.family),
            schema.NODEPORT_ADDRESSES: interval_elements(node.node_port_cidrs, self.family),
            schema.PING_ANSWERS: ping_elements(node.service_cidrs, self.family),
            **names_elements(node.names, self.image[schema.FRONTENDS], self.family),
        }
        for name, elements in wanted.items():
            held = self.image[name]
            changed = {
                key: elements.get(key) for key in held.keys() | elements.keys() if held.get(key) != elements.get(key)
            }
            if changed:
                self._put(name, changed)
                if name == schema.NODEPORT_ADDRESSES:
                    self._look_at_blocks(self.image[schema.CLUSTER_IP_BLOCKS])

    def _look_at_blocks(self, blocks: Iterable[bytes]) -> None:
        """Updates which of these blocks have ClusterIPs and no other address of ours: as many as the set can hold; packets of the
        others take the longer path."""
        having, only = self.image[schema.CLUSTER_IP_BLOCKS], self.image[schema.CLUSTER_IP_ONLY_BLOCKS]
        node_ports = self.image[schema.NODEPORT_ADDRESSES]
        wanted = {block: block in having and self._others.absent(block, node_ports) for block in blocks}
        changed: dict[bytes, bytes | None] = {
            block: None for block, there in wanted.items() if not there and block in only
        }
        room = schema.ONLY_BLOCKS_SIZE - len(only) + len(changed)
        new = sorted(block for block, there in wanted.items() if there and block not in only)
        changed.update(dict.fromkeys(new[:room], b""))
        if changed:
            self._put(schema.CLUSTER_IP_ONLY_BLOCKS, changed)

    @property
    def programmed(self) -> ReadableImage:
        return self._programmed if self._settled else empty_image(self.image)

    @property
    def dirty(self) -> dict[str, AbstractSet[bytes]]:
        """The keys that changed since the last `settle`, by set: those of endpoints before those of frontends, for which the kernel needs
        one answer less than the other way round."""
        changed: Mapping[str, Mapping[bytes, object]] = self._before if self._settled else self.image
        return {name: changed[name].keys() for name in reversed(self._before) if changed[name]}

    def take_dirty(self) -> dict[str, frozenset[bytes]]:
        """Returns the dirty keys, and settles."""
        dirty = {name: frozenset(keys) for name, keys in self.dirty.items()}
        self.settle()
        return dirty

    def settle(self) -> None:
        """Called when the image is programmed as it is."""
        self._settled = True
        for before in self._before.values():
            if before:
                before.clear()

    def owner_of(self, name: str, key: bytes) -> ObjectKey | None:
        """Returns the service that an element comes from (one of them, if it is shared); None if it is the node's own."""
        for service, held in self._held.items():
            if key in held.keys and (name, key) in zip(held.sets, held.keys, strict=True):
                return service
            for listed in held.lists:
                where = listed.where
                if where.name == name and key.startswith(where.key) and key in listed.elements():
                    return service
        return None

    def _retire(self, held: HeldService, successor: RenderedService) -> set[bytes]:
        """Removes a service's elements, except those of lists that stay; returns the blocks in which something may have changed."""
        for name, key in zip(held.sets, held.keys, strict=True):
            counts = self._shared.get(name)
            if counts is not None:
                counts[key] -= 1
                if counts[key]:
                    continue
                del counts[key]
            self._put(name, {key: None})
        for listed in held.lists:
            if listed not in successor.lists:
                self._put(listed.where.name, dict.fromkeys(listed.keys()))
        return self._others.remove(held.by_set())

    def _install(self, key: ObjectKey, state: ServiceState | None, ready: RenderedService) -> set[bytes]:
        """Adds a service's elements; returns the blocks in which something may have changed."""
        elements = ready.rendering.elements
        for name, wanted in elements.items():
            counts = self._shared.get(name)
            if counts is not None:
                for shared in wanted:
                    counts[shared] = counts.get(shared, 0) + 1
            self._add(name, wanted)
        for listed in ready.new:
            self._add(listed.where.name, listed.elements())
        sets, keys = flat_keys(elements)
        if keys or ready.lists:
            self._held[key] = HeldService(self._form(sets), keys, ready.lists, state)
        return self._others.add(elements)

    def _form(self, sets: tuple[str, ...]) -> tuple[str, ...]:
        if len(self._forms) >= MOST_FORMS:
            self._forms.clear()
        return self._forms.setdefault(sets, sets)

    def _plain(self, key: ObjectKey, state: ServiceState | None) -> PlainService | None:
        """Returns the elements of a new service that is plain; None if it must be rendered."""
        if state is None or key in self.unrendered or self.affinity.knows(key) or self.timeouts.knows(key):
            return None
        try:
            return plain_service(state, self.family)
        except Exception:  # noqa: BLE001 - it is met again when the service is rendered, and reported there
            return None

    def _install_plain(
        self, key: ObjectKey, state: ServiceState | None, plain: PlainService, programmed: ReadableImage
    ) -> Iterable[bytes]:
        """Does what `_render` and `_install` do, for a new service that is plain; returns the same blocks."""
        sets: tuple[str, ...] = ()
        keys: list[bytes] = []
        for name, wanted in plain.keys.items():
            sets += (name,) * len(wanted)
            keys += wanted
            if (counts := self._shared.get(name)) is not None:
                for shared in wanted:
                    counts[shared] = counts.get(shared, 0) + 1
                    self._write(name, shared, b"")
        lists: list[Held] = []
        for place, value, backends in plain.frontends:
            where = SlotList(place, node_port=False, cluster_scope=False, sticky=False)
            stays = self._lists and self.image[schema.FRONTENDS].get(place) == value
            listed: Held | None = same_slots(where, backends, self._lists) if stays else None
            if listed is None:
                listed, is_programmed = new_list(where, backends, programmed, self._lists)
                if not (is_programmed and self._found is not None):
                    self._add(schema.BACKENDS, listed.elements())
                self._write(schema.FRONTENDS, place, value)
            lists.append(listed)
        self._held[key] = HeldService(self._form(sets), tuple(keys), tuple(lists), state)
        return plain.keys.get(schema.CLUSTER_IP_BLOCKS, ())

    def _write(self, name: str, key: bytes, value: bytes) -> None:
        """Writes one element of a map or set, if it is not there."""
        if self.image[name].get(key) != value:
            self._remember(name, (key,))
            self.image[name][key] = value

    def _remove_what_no_service_has(self) -> None:
        """Removes it from the sets that were taken over. They are looked through only if they have more elements than all services."""
        counts = count_elements(self._held.values())
        for name in _TAKEN_OVER:
            elements, shared = self.image[name], self._shared.get(name)
            if len(elements) != (counts[name] if shared is None else len(shared)):
                self._put(name, dict.fromkeys(elements.keys() - keys_in(name, self._held.values())))


def concerns(state: ServiceState | None, family: Family) -> bool:
    """Returns whether a service may have elements in the table of this family."""
    if state is None:
        return False
    for frontend in state.frontends:
        if frontend.family is family:
            return True
    return family in map(family_of, state.cluster_ips)


def slots_of(states: Iterable[ServiceState | None]) -> int:
    """Returns how many endpoints all routes of some services have together."""
    count = 0
    for state in states:
        for frontend in () if state is None else state.frontends:
            count += len(frontend.route.backends)
            count += 0 if frontend.short_circuit is None else len(frontend.short_circuit.backends)
    return count
