"""The endpoints of one list, kept from change to change (pure).

A change of one endpoint is found by comparing the old and the new list from both ends, and costs as many
elements as change, whatever the length of the list.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol

from nodeagent.model.frontend import Backend
from nodeagent.model.packed import SEPARATOR
from nodeagent.model.packed_backends import PackedBackends
from nodeagent.proxy.dataplane.image.image import Elements, ReadableImage, endpoint_value, endpoint_values, packed_class
from nodeagent.proxy.dataplane.image.render import (
    EndpointLists,
    MemberList,
    SlotList,
    assign_slots,
    programmed_list,
    slots_from,
)
from nodeagent.proxy.dataplane.program.classes import first_slot

_STRIDE = 256
_FEW = 4
"""Fewer endpoints than this are looked up one by one, more in one walk over the list."""


def changed_backends(before: Sequence[Backend], after: Sequence[Backend]) -> tuple[set[Backend], set[Backend]]:
    """Returns (removed, added). Fast if both lists begin and end alike; correct for any two."""
    if before is after:
        return set(), set()
    start = _common_prefix(before, after)
    stop = min(len(before), len(after)) - start
    ending = min(stop, _common_prefix(before[::-1], after[::-1]))
    old, new = set(before[start : len(before) - ending]), set(after[start : len(after) - ending])
    return old - new, new - old


def _common_prefix(one: Sequence[Backend], other: Sequence[Backend]) -> int:
    """Returns how many elements are equal from the beginning on."""
    length = min(len(one), len(other))
    at = 0
    while at < length and one[at : at + _STRIDE] == other[at : at + _STRIDE]:
        at += _STRIDE
    while at < length and one[at] == other[at]:
        at += 1
    return min(at, length)


class Held(Protocol):
    """The elements of one list of endpoints."""

    @property
    def where(self) -> SlotList | MemberList: ...
    def __len__(self) -> int: ...
    def keys(self) -> Sequence[bytes]: ...
    def elements(self) -> Elements: ...

    def amend(self, backends: Sequence[Backend]) -> dict[bytes, bytes | None]:
        """Replaces the endpoints by `backends`; returns the elements that change (None: removed)."""
        ...


def new_list(
    where: SlotList | MemberList, backends: Sequence[Backend], programmed: ReadableImage, read: EndpointLists
) -> tuple["Slots | Members", bool]:
    """Returns a new list, and whether the programmed image is known to have all its elements. read: lists of the programmed image.

    Endpoints take over the slots that they have in the programmed image.
    """
    if isinstance(where, MemberList):
        return Members(where, backends), False
    before, complete = programmed_list(
        programmed, read, where.key, node_port=where.node_port, cluster_scope=where.cluster_scope
    )
    by_slot = assign_slots(before, _packed(backends))
    return Slots(where, backends, by_slot), complete and by_slot is before


def same_slots(where: SlotList, backends: PackedBackends, read: EndpointLists) -> "Slots | None":
    """Returns the list as it was read, if it has exactly these endpoints; None if not. Its frontend is known to be the same as the one
    that was read, with the class of this list."""
    held = read.get(where.key + slots_from(0, 1)[0])
    if held is None:
        return None
    return Slots(where, backends, held) if assign_slots(held, _packed(backends)) is held else None


class Members:
    """Endpoints that are elements of a set."""

    __slots__ = ("_backends", "where")

    def __init__(self, where: MemberList, backends: Sequence[Backend]) -> None:
        self.where = where
        self._backends = backends

    def __len__(self) -> int:
        return len(self._backends)

    def keys(self) -> Sequence[bytes]:
        return [self.where.key + endpoint for endpoint in _packed(self._backends)]

    def elements(self) -> Elements:
        return dict.fromkeys(self.keys(), b"")

    def amend(self, backends: Sequence[Backend]) -> dict[bytes, bytes | None]:
        gone, new = _changed_endpoints(self._backends, backends)
        self._backends = backends
        key = self.where.key
        return {**{key + endpoint: None for endpoint in gone}, **{key + endpoint: b"" for endpoint in new}}


class Slots:
    """Endpoints that are picked by number: the desired list, and which endpoint has which slot."""

    __slots__ = ("_backends", "_by_slot", "where")

    def __init__(self, where: SlotList, backends: Sequence[Backend], by_slot: list[bytes]) -> None:
        self.where = where
        self._backends = backends
        self._by_slot = by_slot

    def __len__(self) -> int:
        return len(self._by_slot)

    @property
    def endpoints(self) -> Sequence[bytes]:
        """The packed endpoints, each at the index of its slot."""
        return self._by_slot

    def keys(self) -> Sequence[bytes]:
        key = self.where.key
        return [key + slot for slot in slots_from(self._first_slot, len(self._by_slot))]

    def elements(self) -> Elements:
        return dict(zip(self.keys(), self._by_slot, strict=True))

    def amend(self, backends: Sequence[Backend]) -> dict[bytes, bytes | None]:
        """Replaces the endpoints by `backends`; returns the elements that change (None: removed).

        As with `assign_slots`, endpoints that stay keep a slot below the new count, the others fill the holes in order.
        """
        gone, new = _changed_endpoints(self._backends, backends)
        self._backends = backends
        if not gone and not new:
            return {}
        held, count = self._by_slot, len(backends)
        before = len(held)
        holes = [slot for slot in _positions(held, gone) if slot < count]
        homeless = [endpoint for endpoint in held[count:] if endpoint not in gone]
        del held[count:]
        held += [b""] * (count - len(held))
        changed: dict[bytes, bytes | None] = {}
        key, first = self.where.key, self._first_slot
        for slot, endpoint in zip(chain(holes, range(before, count)), sorted(chain(homeless, new)), strict=True):
            held[slot] = endpoint
            changed[key + packed_class(first + slot)] = endpoint
        for slot in range(count, before):
            changed[key + packed_class(first + slot)] = None
        return changed

    @property
    def _first_slot(self) -> int:
        return first_slot(cluster_scope=self.where.cluster_scope)


def _packed(backends: Iterable[Backend]) -> list[bytes]:
    if isinstance(backends, PackedBackends):
        return endpoint_values(backends.addresses.split(SEPARATOR), backends.port)
    held = list(backends)
    if len({one.port for one in held}) == 1:
        return endpoint_values([one.address for one in held], held[0].port)
    return [endpoint_value(one.address, one.port) for one in held]


def _changed_endpoints(before: Sequence[Backend], after: Sequence[Backend]) -> tuple[set[bytes], set[bytes]]:
    """Returns (removed, added); whether an endpoint is on this node makes no difference."""
    if before is after:
        return set(), set()
    if isinstance(before, PackedBackends) and isinstance(after, PackedBackends) and before.port == after.port:
        old, now, port = set(before.addresses.split(SEPARATOR)), set(after.addresses.split(SEPARATOR)), after.port
        return _values(old - now, port), _values(now - old, port)
    went, came = changed_backends(tuple(before), tuple(after))
    gone, new = set(_packed(went)), set(_packed(came))
    return gone - new, new - gone


def _values(addresses: set[str], port: int) -> set[bytes]:
    return {endpoint_value(address, port) for address in addresses}


def _positions(held: list[bytes], wanted: set[bytes]) -> list[int]:
    if len(wanted) < _FEW:
        return sorted([held.index(endpoint) for endpoint in wanted])
    return [slot for slot, endpoint in enumerate(held) if endpoint in wanted]
