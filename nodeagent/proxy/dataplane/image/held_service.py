"""What an image holds of one service: the keys of its elements and its endpoint lists (pure)."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from nodeagent.model.frontend import ServiceState
from nodeagent.proxy.dataplane.image.image import TableImage
from nodeagent.proxy.dataplane.image.render import Rendering
from nodeagent.proxy.dataplane.image.slots import Held


class HeldService(NamedTuple):
    """One service's part of the image: its keys, for each the set that has it, its endpoint lists, and the state that was rendered."""

    sets: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()
    lists: tuple[Held, ...] = ()
    state: ServiceState | None = None

    def by_set(self) -> dict[str, list[bytes]]:
        """Returns the keys by set."""
        found: dict[str, list[bytes]] = {}
        for name, key in zip(self.sets, self.keys, strict=True):
            found.setdefault(name, []).append(key)
        return found


class RenderedService(NamedTuple):
    """A service's rendering, its lists, and those of them that are new."""

    rendering: Rendering
    lists: tuple[Held, ...] = ()
    new: tuple[Held, ...] = ()


def flat_keys(elements: TableImage) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
    """Returns the set of each key, and the keys."""
    sets = tuple([name for name, wanted in elements.items() for _ in wanted])
    return sets, tuple([key for wanted in elements.values() for key in wanted])


def has_same_keys(held: HeldService, ready: RenderedService) -> bool:
    """Returns whether a service keeps the keys of its elements, and its lists."""
    return (
        not ready.new
        and len(held.lists) == len(ready.lists)
        and (held.sets, held.keys) == flat_keys(ready.rendering.elements)
    )


def count_elements(services: Collection[HeldService]) -> Counter[str]:
    """Returns how many elements services have in each set; one that several have counts for each of them."""
    counts: Counter[str] = Counter()
    for sets, having in Counter([held.sets for held in services]).items():
        for name in sets:
            counts[name] += having
    for held in services:
        for listed in held.lists:
            counts[listed.where.name] += len(listed)
    return counts


def keys_in(name: str, services: Iterable[HeldService]) -> set[bytes]:
    """Returns the keys that services have in a set."""
    found: set[bytes] = set()
    for held in services:
        if name in held.sets:
            found.update([key for of, key in zip(held.sets, held.keys, strict=True) if of == name])
        for listed in held.lists:
            if listed.where.name == name:
                found.update(listed.keys())
    return found
