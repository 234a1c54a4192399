"""Counts of connections that pass from an element to the one that takes its place (pure).

The kernel cannot change an element's value: it is deleted and made again, and its counter with it. So the new one begins with
what the old one had counted when the transaction was made. What came between that and the commit the kernel tells with the
deletion (NLM_F_ECHO); it waits here until the element is made again the next time.

A frontend's count stays at its key. An endpoint's goes with the endpoint, from slot to slot of its list.
"""

from collections.abc import Iterable, Mapping

from nodeagent.proxy.dataplane.image.image import Elements, TableImage, class_of
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import CLUSTER_SCOPE_OFFSET

COUNTED_FRONTENDS = (schema.FRONTENDS, schema.NODEPORTS)
COUNTED_ENDPOINTS = (schema.BACKENDS, schema.NODEPORT_BACKENDS)
COUNTED = (*COUNTED_FRONTENDS, *COUNTED_ENDPOINTS)
MOST_ECHOED = 1000
"""Of more elements in one transaction the kernel tells nothing: its answers have to fit the socket's buffer."""

SLOT_LENGTH = 4
"""Bytes at the end of an endpoint's key."""

Counts = dict[str, dict[bytes, tuple[int, int]]]
"""Map → key → (packets, bytes)."""
Successors = Mapping[str, Mapping[bytes, bytes]]
"""Map → key of a new element → key of the old one whose count it goes on with."""


def carried_keys(
    wanted: TableImage,
    programmed: TableImage,
    dirty: Mapping[str, Iterable[bytes]] | None,
    *,
    anew: bool = False,
) -> dict[str, dict[bytes, bytes]]:
    """Who goes on with whose count, of the elements that are made again. dirty: keys that may differ; None: any. anew: all of
    them are, in a table that takes the old one's place."""
    found: dict[str, dict[bytes, bytes]] = {}
    for name in COUNTED:
        want, have = wanted[name], programmed.get(name, {})
        looked_at = have.keys() | want.keys() if dirty is None else dirty.get(name, ())
        changed = [key for key in looked_at if anew or want.get(key) != have.get(key)]
        if name in COUNTED_FRONTENDS:
            successors = {key: key for key in changed if key in have and key in want}
        else:
            successors = _moved(changed, want, have)
        if successors:
            found[name] = successors
    return found


def _moved(changed: Iterable[bytes], want: Elements, have: Elements) -> dict[bytes, bytes]:
    old = {(_list_of(key), have[key]): key for key in changed if key in have}
    pairs = ((key, old.get((_list_of(key), want[key]))) for key in changed if key in want)
    return {key: before for key, before in pairs if before is not None}


def _list_of(key: bytes) -> tuple[bytes, int]:
    """Which list of which frontend a slot is in; with affinity or without makes no difference."""
    return key[:-SLOT_LENGTH], class_of(key[-SLOT_LENGTH:]) & CLUSTER_SCOPE_OFFSET


class Uncounted:
    """Connections that no element of the kernel has in its counter, by map and key."""

    def __init__(self) -> None:
        self.by_map: dict[str, dict[bytes, int]] = {name: {} for name in COUNTED}

    def add(self, name: str, missed: Mapping[bytes, int]) -> None:
        """Connections to elements of one map."""
        by_key = self.by_map[name]
        for key, packets in missed.items():
            by_key[key] = by_key.get(key, 0) + packets

    def added_to(self, counts: Counts) -> Counts:
        """What the kernel has counted and these."""
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
        """Elements were rebuilt. carried: what the kernel had counted of the old ones before; final: what they had in the
        end; gone: keys that were deleted."""
        for name, by_key in self.by_map.items():
            for key in gone.get(name, ()):
                by_key.pop(key, None)
            before, after = carried.get(name, {}), final.get(name, {})
            for key, old in successors.get(name, {}).items():
                packets = before.get(old, (0, 0))[0]
                missed = after.get(old, packets) - packets
                if missed > 0:
                    by_key[key] = missed
                else:
                    by_key.pop(key, None)


def begun_with(counts: Counts, successors: Successors) -> Counts:
    """With what new elements begin, by their own keys. counts: of the old ones."""
    return {
        name: {key: counts[name][old] for key, old in pairs.items() if old in counts[name]}
        for name, pairs in successors.items()
        if name in counts
    }
