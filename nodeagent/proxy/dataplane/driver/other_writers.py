"""Detects whether other processes changed one family's table since it was known to be as believed.

What is known is a generation of the ruleset: up to it all changes were ours, or have been checked.
"""

from collections.abc import Mapping
from functools import partial
from time import monotonic

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Belief, Ownership, matches_outline
from nodeagent.proxy.dataplane.driver.element_walk import ElementWalk
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import KernelUnclear
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.proxy.dataplane.worker_thread import in_thread

_COMPARED = tuple(
    spec.name
    for spec in schema.set_specs(counters=False)
    if spec.name in schema.DATA_SETS and not (spec.interval and len(spec.key) == 1)
)
"""Sets whose elements a look only counts; it reads those of ranges."""


class OtherWriters:
    """Checks a plain table for foreign changes. An owned table cannot be changed by others."""

    def __init__(
        self,
        family: Family,
        specs: Mapping[str, SetSpec],
        options: ProgramOptions,
        ownership: Ownership,
        socket: Ruleset,
        table: KernelTable,
    ) -> None:
        self._family = family
        self._specs = specs
        self._options = options
        self._plain = ownership is Ownership.PLAIN
        self._socket = socket
        self._table = table
        self._known = -1
        self._walk = ElementWalk(_COMPARED)

    def begin(self) -> None:
        """Called before the table is read: remembers the generation."""
        if self._plain:
            self._known = self._socket.generation()

    def known(self) -> int | None:
        """Returns a generation at which the table was as believed, except for commits of ours; None if nobody else can change it."""
        return self._known if self._plain else None

    def ruleset_changed(self) -> bool:
        """Returns whether another process changed any ruleset since the known generation."""
        return self._plain and not self._socket.steps.covers(self._known, self._socket.generation())

    async def is_undisturbed(self, belief: Belief) -> bool:
        """Returns whether the table is as believed: compares its outline if another process changed any ruleset since the last call."""
        generation = self._socket.generation()
        if not self._socket.steps.covers(self._known, generation):
            outline = await in_thread(partial(self._table.outline, belief.image))
            if not matches_outline(outline, self._specs, self._family, self._options, belief):
                return False
            self._walk.restart()
        self._known = generation
        return True

    def next_elements_match(self, belief: Belief) -> bool:
        """Compares the next slice of elements, if some are left to compare; returns whether they are as believed."""
        slices = self._walk.take(belief.image, monotonic())
        try:
            return all(self._table.holds(name, elements) for name, elements in slices.items())
        except KernelUnclear:
            self._walk.restart()
            raise
