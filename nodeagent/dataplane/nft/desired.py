"""What one family's table should hold: the sum of all services and the node's own sets (pure, incremental)."""

from collections import Counter
from collections.abc import Iterable, Mapping

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.affinity import AffinityIds
from nodeagent.dataplane.nft.classes import PickClass, pick_class
from nodeagent.dataplane.nft.image import Elements, TableImage, class_of, empty_image, interval_elements
from nodeagent.dataplane.nft.render import render_service
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem

_SHARED = frozenset({schema.CLUSTER_IPS, schema.HAIRPIN})
"""Sets in which several services may have the same element; all others belong to one service a key."""

_CLASS_MAPS = (
    schema.FRONTENDS,
    schema.GUARDED_FRONTENDS,
    schema.FRONTENDS_CLUSTER_SCOPE,
    schema.FRONTENDS_LOCAL_SCOPE,
    schema.NODEPORTS,
    schema.NODEPORTS_CLUSTER_SCOPE,
    schema.NODEPORTS_LOCAL_SCOPE,
)
_TIMEOUT_MAPS = (schema.STICKY_TIMEOUTS, schema.NODEPORT_STICKY_TIMEOUTS)


class DesiredImage:
    """The wanted image of one family and which service each element came from.

    `dirty` collects the keys that may differ from what is programmed; `take_dirty` hands them over.
    unrendered: services that cannot be put into elements, which is a defect of this program; the others are.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.image: TableImage = empty_image(schema.DATA_SETS)
        self._keys_by_service: dict[ObjectKey, dict[str, tuple[bytes, ...]]] = {}
        self._shared: dict[str, Counter[bytes]] = {name: Counter() for name in _SHARED}
        self._dirty: dict[str, set[bytes]] = {}
        self.affinity = AffinityIds(family)
        self.unrendered: dict[ObjectKey, Problem] = {}

    def update(self, changes: Mapping[ObjectKey, ServiceState | None], programmed: TableImage) -> None:
        """Replace the elements of some services (None: the service is gone).

        All old elements go before new ones come: a frontend that passes from one service to another is in both.
        """
        rendered: dict[ObjectKey, TableImage] = {}
        for key, state in changes.items():
            self.unrendered.pop(key, None)
            rendered[key] = self._render(key, state, programmed)
        for key, elements in rendered.items():
            self._retire(key, elements)
        for key, elements in rendered.items():
            self._install(key, elements)

    def _render(self, key: ObjectKey, state: ServiceState | None, programmed: TableImage) -> TableImage:
        try:
            admitted = self.affinity.admit(key, state)
            return {} if admitted is None else render_service(admitted, self.family, programmed)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this service's trouble alone
            self.affinity.admit(key, None)
            detail = f"internal error, the service is left out in {self.family.value}: {type(error).__name__}: {error}"
            self.unrendered[key] = Problem(f"Service {key}", "RenderingFailed", detail)
            return {}

    def set_node(self, node: NodeState) -> None:
        """Replace the node's own sets."""
        for name, cidrs in (
            (schema.SERVICE_CIDRS, node.service_cidrs),
            (schema.POD_CIDRS, node.pod_cidrs),
            (schema.NODEPORT_ADDRESSES, node.node_port_cidrs),
        ):
            elements = interval_elements(cidrs, self.family)
            held = self.image[name]
            changed = {key for key in held.keys() | elements.keys() if held.get(key) != elements.get(key)}
            if changed:
                self._dirty.setdefault(name, set()).update(changed)
                self.image[name] = elements

    def take_dirty(self) -> dict[str, set[bytes]]:
        """The keys changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        return dirty

    def owner_of(self, name: str, key: bytes) -> ObjectKey | None:
        """The service an element came from (one of them, for a shared one); None for the node's own."""
        for service, keys in self._keys_by_service.items():
            if key in keys.get(name, ()):
                return service
        return None

    def _retire(self, service: ObjectKey, successor: TableImage) -> None:
        for name, keys in self._keys_by_service.pop(service, {}).items():
            held = self.image[name]
            dirty = self._dirty.setdefault(name, set())
            staying: Elements = successor.get(name, {})
            counts = self._shared.get(name)
            for key in keys:
                if counts is not None:
                    counts[key] -= 1
                    if counts[key]:
                        continue
                    del counts[key]
                del held[key]
                if key not in staying:
                    dirty.add(key)

    def _install(self, service: ObjectKey, elements: TableImage) -> None:
        keys: dict[str, tuple[bytes, ...]] = {}
        for name, wanted in elements.items():
            if not wanted:
                continue
            keys[name] = tuple(wanted)
            counts = self._shared.get(name)
            if counts is not None:
                counts.update(keys[name])
            self.image[name].update(wanted)
            self._dirty.setdefault(name, set()).update(wanted)
        if keys:
            self._keys_by_service[service] = keys


def classes_in(elements_by_map: TableImage) -> set[PickClass]:
    """The pick classes that the frontends of an image (or of a delta's puts) lead to."""
    numbers = {class_of(value) for name in _CLASS_MAPS for value in elements_by_map.get(name, {}).values()}
    return {pick for number in numbers if (pick := pick_class(number)) is not None}


def timeouts_in(elements_by_map: TableImage) -> set[int]:
    """The affinity timeouts (seconds) in an image or in a delta's puts."""
    return {class_of(value) for name in _TIMEOUT_MAPS for value in set(elements_by_map.get(name, {}).values())}


def cluster_ips_of(states: Iterable[ServiceState]) -> frozenset[str]:
    """Every ClusterIP, both families: what the service interface holds."""
    return frozenset(address for state in states for address in state.cluster_ips)
