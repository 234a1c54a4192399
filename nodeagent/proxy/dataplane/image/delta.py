"""Desired minus programmed (pure): the one difference that incremental passes, restarts and repairs use."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from nodeagent.proxy.dataplane.image.earlier import values_at
from nodeagent.proxy.dataplane.image.image import Elements, ReadableImage, TableImage


@dataclass(frozen=True)  # without slots: `touched` is counted once
class Delta:
    """Elements to write and keys to remove, by set. A key whose value changes is in both: the kernel cannot replace values."""

    puts: dict[str, Elements] = field(default_factory=dict)
    deletes: dict[str, list[bytes]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.puts and not self.deletes

    @cached_property
    def touched(self) -> int:
        """The number of different elements that change."""
        put = sum(map(len, self.puts.values()))
        return put + sum([len(set(keys).difference(self.puts.get(name, ()))) for name, keys in self.deletes.items()])


def diff_images(wanted: TableImage, programmed: ReadableImage) -> Delta:
    """Returns everything that differs in the sets of `wanted`."""
    keys: dict[str, Iterable[bytes]] = {}
    new: dict[str, Elements] = {}
    for name, elements in wanted.items():
        held = programmed.get(name, {})
        if not held and elements:
            new[name] = dict(elements)
        elif elements != held:
            keys[name] = elements.keys() | held.keys()
    some = diff_keys(keys, wanted, programmed)
    return Delta({**some.puts, **new}, some.deletes)


def diff_keys(keys: Mapping[str, Iterable[bytes]], wanted: TableImage, programmed: ReadableImage) -> Delta:
    """Returns what differs at the given keys, in their order, or sorted if they are an unordered set.

    The kernel accepts some nested ranges in one order only, so the order must not depend on chance.
    """
    puts: dict[str, Elements] = {}
    deletes: dict[str, list[bytes]] = {}
    for name, names_keys in keys.items():
        want_in, have_in = wanted[name], programmed.get(name, {})
        put: Elements = {}
        delete: list[bytes] = []
        ordered = sorted(names_keys) if isinstance(names_keys, AbstractSet) else list(names_keys)
        for key, have in zip(ordered, values_at(have_in, ordered), strict=True):
            want = want_in.get(key)
            if want == have:
                continue
            if have is not None:
                delete.append(key)
            if want is not None:
                put[key] = want
        if put:
            puts[name] = put
        if delete:
            deletes[name] = delete
    return Delta(puts, deletes)


def apply_delta(image: TableImage, delta: Delta) -> None:
    """Brings `image` to the state after `delta` (law: apply(diff(a, b), b) == a)."""
    for name, keys in delta.deletes.items():
        elements = image[name]
        for key in keys:
            elements.pop(key, None)
    for name, elements in delta.puts.items():
        image[name].update(elements)
