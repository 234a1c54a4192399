"""Decides which changes of ranges are committed before the rest (pure).

The kernel publishes the elements of interval sets after everything else in a transaction (nf_tables_api.c, nft_set_commit_update):
those of concatenations (nft_pipapo_commit), and lone ranges in newer kernels, 6.18.44 among them (nft_rbtree_commit). For that moment
the old ranges are seen together with the new rules and elements.
"""

from collections.abc import Iterable, Iterator

from nodeagent.proxy.dataplane.image.delta import Delta
from nodeagent.proxy.dataplane.image.image import Elements, TableImage, class_of
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import GUARDED

_INTERVALS = tuple(spec.name for spec in schema.set_specs(counters=False) if spec.interval and len(spec.key) == 1)


def split_delta(delta: Delta, wanted: TableImage, *, rewritten: bool) -> tuple[Delta, Delta]:
    """Splits a delta; returns what must be committed first, and the rest.

    First: ranges that are deleted, so that no new packet matches them: the allowed sources of a frontend's former Service, and
    addresses or sources that overlap no new range (replacing a range by a wider one must not leave a gap). And if the rules are
    rewritten: new ranges, because the new rules may be the first to look them up.
    """
    puts: dict[str, Elements] = {}
    deletes: dict[str, list[bytes]] = {}
    for name in _INTERVALS:
        coming, going = delta.puts.get(name, {}), delta.deletes.get(name, [])
        if rewritten:
            if coming and not going:
                puts[name] = coming
        elif going and not any(_overlap(key, other) for key in going for other in coming):
            deletes[name] = going
    if former := list(_of_former_services(delta, wanted)):
        deletes[schema.ALLOWED_SOURCES] = former
    return Delta(puts, deletes), _without(delta, puts, deletes)


def _overlap(one: bytes, other: bytes) -> bool:
    half = len(one) // 2
    return one[:half] <= other[half:] and other[:half] <= one[half:]


def _of_former_services(delta: Delta, wanted: TableImage) -> Iterator[bytes]:
    """Yields the ranges of frontends that now belong to another Service: the name of its port is part of the value."""
    frontends = delta.puts.get(schema.FRONTENDS, {})
    for key in delta.deletes.get(schema.ALLOWED_SOURCES, ()):
        frontend = _frontend_of(key)
        if frontend in frontends and class_of(wanted[schema.FRONTENDS][frontend]) == GUARDED:
            yield key


def _frontend_of(key: bytes) -> bytes:
    """Returns the frontend of a range, which is frontend . first source . the same frontend . last source."""
    half = len(key) // 2
    address_length = half // 2 - 4
    return key[: half - address_length]


def _without(delta: Delta, puts: dict[str, Elements], deletes: dict[str, list[bytes]]) -> Delta:
    if not puts and not deletes:
        return delta
    return Delta(
        {name: elements for name, elements in delta.puts.items() if name not in puts},
        {name: rest for name, keys in delta.deletes.items() if (rest := _rest(keys, deletes.get(name, ())))},
    )


def _rest(keys: list[bytes], gone: Iterable[bytes]) -> list[bytes]:
    already = set(gone)
    return [key for key in keys if key not in already] if already else keys
