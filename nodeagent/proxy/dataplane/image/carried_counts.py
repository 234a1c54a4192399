"""Carries counts of connections from an element to the one that replaces it (pure).

The kernel cannot change an element's value: it is deleted and created again, with a new counter. So the new counter starts with
the count of the old one when the transaction was made. The kernel reports with the deletion (NLM_F_ECHO) what was counted between
that and the commit; this difference is kept here until the element is rebuilt the next time.

A frontend's count stays at its key. An endpoint's count follows the endpoint, from slot to slot of its list.
"""

from collections.abc import Iterable, Mapping

from nodeagent.proxy.dataplane.image.earlier import values_at
from nodeagent.proxy.dataplane.image.image import Elements, ReadableImage, TableImage, class_of
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import CLUSTER_SCOPE_OFFSET

COUNTED_FRONTENDS = (schema.FRONTENDS, schema.NODEPORTS)
COUNTED_ENDPOINTS = (schema.BACKENDS, schema.NODEPORT_BACKENDS)
COUNTED = (*COUNTED_FRONTENDS, *COUNTED_ENDPOINTS)
MOST_ECHOED = 1000
"""If a transaction has more elements, the kernel reports nothing: its answers have to fit the socket's buffer."""

SLOT_LENGTH = 4
"""Bytes at the end of an endpoint's key."""

Counts = dict[str, dict[bytes, tuple[int, int]]]
"""Map → key → (packets, bytes)."""
Successors = Mapping[str, Mapping[bytes, bytes]]
"""Map → key of a new element → key of the old one whose count it continues."""


def carried_keys(
    wanted: TableImage,
    programmed: ReadableImage,
    dirty: Mapping[str, Iterable[bytes]] | None,
    *,
    anew: bool = False,
    counted: Iterable[str] = COUNTED,
) -> dict[str, dict[bytes, bytes]]:
    """Returns which new element continues which old one's count, for elements that are rebuilt.

    dirty: keys that may differ; None: any. anew: all are rebuilt, in a table that replaces the old one. counted: the maps with counters.
    """
    found: dict[str, dict[bytes, bytes]] = {}
    for name in counted:
        want, have = wanted[name], programmed.get(name, {})
        if dirty is None and not anew and want == have:
            continue
        keys = have.keys() | want.keys() if dirty is None else dirty.get(name, ())
        keys = list(keys)
        old = {
            key: value for key, value in zip(keys, values_at(have, keys), strict=True) if anew or want.get(key) != value
        }
        if name in COUNTED_FRONTENDS:
            successors = {key: key for key, value in old.items() if value is not None and key in want}
        else:
            successors = _moved(want, old)
        if successors:
            found[name] = successors
    return found


def _moved(want: Elements, old: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    """old: the earlier values of the keys that changed; None: the key is new."""
    places = {(_list_of(key), value): key for key, value in old.items() if value is not None}
    pairs = ((key, places.get((_list_of(key), want[key]))) for key in old if key in want)
    return {key: before for key, before in pairs if before is not None}


def _list_of(key: bytes) -> tuple[bytes, int]:
    """Returns the list and the frontend of a slot; with affinity or without makes no difference."""
    return key[:-SLOT_LENGTH], class_of(key[-SLOT_LENGTH:]) & CLUSTER_SCOPE_OFFSET


class Uncounted:
    """Connections that are in no counter of the kernel, by map and key."""

    def __init__(self) -> None:
        self.by_map: dict[str, dict[bytes, int]] = {name: {} for name in COUNTED}

    def add(self, name: str, missed: Mapping[bytes, int]) -> None:
        """Adds connections to elements of one map."""
        by_key = self.by_map[name]
        for key, packets in missed.items():
            by_key[key] = by_key.get(key, 0) + packets

    def added_to(self, counts: Counts) -> Counts:
        """Returns what the kernel has counted, plus these connections."""
        return {
            name: {key: (packets + self.by_map[name].get(key, 0), size) for key, (packets, size) in by_key.items()}
            for name, by_key in counts.items()
        }

    def committed(
        self,
        carried: Counts,
        final: Mapping[str, Mapping[bytes, int]],
        gone: Mapping[str, Iterable[bytes]],
        successors: Successors,
    ) -> None:
        """Updates the counts after elements were rebuilt.

        carried: what the kernel had counted of the old elements before. final: their last counts. gone: keys that were deleted.
        """
        for name, by_key in self.by_map.items():
            for key in gone.get(name, ()) if by_key else ():
                by_key.pop(key, None)
            before, after = carried.get(name, {}), final.get(name, {})
            for key, old in successors.get(name, {}).items():
                packets = before.get(old, (0, 0))[0]
                missed = after.get(old, packets) - packets
                if missed > 0:
                    by_key[key] = missed
                elif by_key:
                    by_key.pop(key, None)


def begun_with(counts: Counts, successors: Successors) -> Counts:
    """Returns the initial counters of new elements, by their own keys. counts: those of the old ones."""
    return {
        name: {key: counts[name][old] for key, old in pairs.items() if old in counts[name]}
        for name, pairs in successors.items()
        if name in counts
    }
