"""Preserves the counters of one family's elements when an element is rebuilt.

The initial value of a new element is read just before the transaction; what the old element counted after that is in the kernel's
report of the deletion. This difference is kept here until the element is rebuilt the next time, at the latest when the agent ends.
"""

from collections.abc import Collection, Iterable, Mapping

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Belief
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import typed_errors
from nodeagent.proxy.dataplane.image.carried_counts import (
    COUNTED,
    COUNTED_FRONTENDS,
    Counts,
    Successors,
    Uncounted,
    begun_with,
    carried_keys,
)
from nodeagent.proxy.dataplane.image.delta import Delta
from nodeagent.proxy.dataplane.image.image import ReadableImage, TableImage
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.nf_tables.element_reading import read_counters
from nodeagent.wire.netlink.nf_tables.ruleset_objects import named_set


class CountKeeper:
    """Carries the counts of connections from replaced elements over to new ones. table: where counters are read. One transaction
    at a time: `prepare` before it, `committed` after it."""

    def __init__(self, family: Family, specs: Mapping[str, SetSpec], table: KernelTable) -> None:
        self._family = family
        self._specs = specs
        self._table = table
        self._uncounted = Uncounted()
        self._carried: Counts = {}
        self._successors: Successors = {}

    @property
    def uncounted(self) -> Mapping[str, Mapping[bytes, int]]:
        """Connections to add to what the kernel has counted, by map and key."""
        return self._uncounted.by_map

    def prepare(
        self, belief: Belief, wanted: TableImage, dirty: Mapping[str, Iterable[bytes]] | None, *, anew: bool
    ) -> tuple[Counts, Successors]:
        """Returns the initial counters of new elements, and which element each count comes from. Blocking.

        dirty: keys that may differ; None: any. anew: the table is rebuilt.
        """
        successors = self._find_successors(belief, wanted, dirty, anew=anew)
        return self._begin(successors, whole=anew), successors

    def prepare_unsettled(self, image: ReadableImage) -> tuple[Delta, Counts, Successors]:
        """Returns the elements with uncounted connections, to be rebuilt as they are in `image`, and the same as `prepare`. Blocking."""
        elements = {
            name: {key: image[name][key] for key in by_key if key in image[name]}
            for name, by_key in self._uncounted.by_map.items()
        }
        puts = {name: found for name, found in elements.items() if found}
        successors = {name: {key: key for key in found} for name, found in puts.items()}
        return (
            Delta(puts, {name: list(found) for name, found in puts.items()}),
            self._begin(successors, whole=False),
            successors,
        )

    def committed(self, deletes: Mapping[str, Iterable[bytes]], echoes: Collection[bytes]) -> None:
        """Notes which connections came between the reading of a counter and the deletion of its element. echoes: the deletions that the
        kernel reported, as the attributes of their messages."""
        final: dict[str, dict[bytes, int]] = {}
        for name in self._successors:
            head = named_set(schema.TABLE, name)
            of_set = [echo for echo in echoes if echo.startswith(head)]
            with typed_errors():
                counted = read_counters(self._specs[name].form(self._family), head, of_set)
            final[name] = {key: packets for key, (packets, _) in counted.items()}
        self._uncounted.committed(self._carried, final, deletes, self._successors)

    def add_missed(self, counts: Counts, image: ReadableImage) -> None:
        """Adds connections that another table counted to the elements that exist here."""
        for name, by_key in counts.items():
            missed = {key: packets for key, (packets, _) in by_key.items() if packets and key in image[name]}
            self._uncounted.add(name, missed)

    def _begin(self, successors: Successors, *, whole: bool) -> Counts:
        """Returns the initial counters. whole: read the whole table, not only the elements that are about to be rebuilt."""
        self._successors = successors
        self._carried = {}
        if successors:
            keys = None if whole else {name: list(pairs.values()) for name, pairs in successors.items()}
            self._carried = self._table.counts(keys)
        return begun_with(self._uncounted.added_to(self._carried), successors)

    def _find_successors(
        self, belief: Belief, wanted: TableImage, dirty: Mapping[str, Iterable[bytes]] | None, *, anew: bool
    ) -> Successors:
        """Returns which element takes over which counter, of the maps that this table counts."""
        counted = [name for name in COUNTED if self._specs[name].counter]
        if not counted or not belief.exists:
            return {}
        found = carried_keys(wanted, belief.image, None if anew else dirty, anew=anew, counted=counted)
        # Of a table that does not fit our schema, frontends are known by their keys only.
        if anew and not any(belief.image.values()):
            found = {name: {key: key for key in wanted[name]} for name in COUNTED_FRONTENDS}
        return {name: found[name] for name in counted if name in found}
