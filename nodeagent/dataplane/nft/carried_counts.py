"""Counts of connections that pass from an element to the one that takes its place (pure).

The kernel cannot change an element's value: it is deleted and made again, and its counter with it. So the new one begins with
what the old one had counted when the transaction was made. What came between that and the commit the kernel tells with the
deletion (NLM_F_ECHO); it waits here until the element is made again the next time.
"""

from collections.abc import Iterable, Mapping

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.image import TableImage

COUNTED = (schema.FRONTENDS, schema.NODEPORTS)
MOST_ECHOED = 1000
"""Of more elements in one transaction the kernel tells nothing: its answers have to fit the socket's buffer."""

Counts = dict[str, dict[bytes, tuple[int, int]]]
"""Map → key → (packets, bytes)."""


def carried_keys(
    wanted: TableImage, programmed: TableImage, dirty: Mapping[str, Iterable[bytes]] | None
) -> dict[str, list[bytes]]:
    """The counted elements that get another value. dirty: keys that may differ; None: any."""
    keys: dict[str, list[bytes]] = {}
    for name in COUNTED:
        want, have = wanted[name], programmed.get(name, {})
        looked_at = have if dirty is None else dirty.get(name, ())
        found = [key for key in looked_at if key in have and key in want and want[key] != have[key]]
        if found:
            keys[name] = found
    return keys


class Uncounted:
    """Connections that no element of the kernel has in its counter, by map and key."""

    def __init__(self) -> None:
        self.by_map: dict[str, dict[bytes, int]] = {name: {} for name in COUNTED}

    def added_to(self, counts: Counts) -> Counts:
        """What the kernel has counted and these."""
        return {
            name: {key: (packets + self.by_map[name].get(key, 0), size) for key, (packets, size) in by_key.items()}
            for name, by_key in counts.items()
        }

    def committed(
        self, carried: Counts, final: Mapping[str, Mapping[bytes, int]], gone: Mapping[str, Iterable[bytes]]
    ) -> None:
        """Elements were made anew. carried: what the kernel had counted of them before; final: what it had in the end; gone:
        keys that were deleted."""
        for name, by_key in self.by_map.items():
            for key in gone.get(name, ()):
                by_key.pop(key, None)
            for key, (packets, _) in carried.get(name, {}).items():
                missed = final.get(name, {}).get(key, packets) - packets
                if missed > 0:
                    by_key[key] = missed
                else:
                    by_key.pop(key, None)
