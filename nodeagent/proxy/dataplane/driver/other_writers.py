"""Finds out whether one family's table is still as believed: after each change by another process, and by an audit at all times.

What is known is a generation of the ruleset: up to it all changes were ours, or have been checked. The audit does not rely on that, and
compares owned tables too (docs/decisions/0110-an-audit.md).
"""

from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import NamedTuple

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Belief, Ownership, outline_deviation
from nodeagent.proxy.dataplane.driver.element_walk import ElementWalk
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.readback import TableDeviation
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


class FoundDrift(NamedTuple):
    """How the table differs from what is believed. after_change: another process has changed the ruleset since all was compared.
    key: of the element that differs, in the set `deviation.detail`; None if it is no single element."""

    deviation: TableDeviation
    after_change: bool
    key: bytes | None = None


class OtherWriters:
    """Checks a table for foreign changes. Others cannot change an owned one: that is only audited."""

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
        self._audit_outline = self._after_change = False

    def begin(self) -> None:
        """Called before the table is read: remembers the generation."""
        if self._plain:
            self._known = self._socket.generation()

    def begin_at(self, generation: int) -> bool:
        """Called with a table that was read after this generation: remembers that. Returns whether nobody has changed a ruleset since."""
        self._known = generation
        return self._socket.steps.covers(generation, self._socket.generation())

    def known(self) -> int | None:
        """Returns a generation at which the table was as believed, except for commits of ours; None if nobody else can change it."""
        return self._known if self._plain else None

    def ruleset_changed(self) -> bool:
        """Returns whether another process changed any ruleset since the known generation."""
        return self._plain and not self._socket.steps.covers(self._known, self._socket.generation())

    async def is_undisturbed(self, belief: Belief) -> bool:
        """Returns whether the table is as believed: compares its outline if another process changed any ruleset since the last call."""
        return await self._deviation_after_change(belief) is None

    async def find_drift(self, belief: Belief) -> FoundDrift | None:
        """Compares what another process may have changed since the last call, and the next slice of the table. Returns the first
        difference; None if all is as believed. Raises KernelUnclear."""
        if self._plain and (found := await self._deviation_after_change(belief)) is not None:
            return FoundDrift(found, after_change=True)
        part = self._walk.take(belief.image, monotonic())
        if part.outline:
            self._audit_outline, self._after_change = True, False
        try:
            for name, elements in part.elements.items():
                if (key := self._table.first_other(name, elements)) is not None:
                    return FoundDrift(
                        TableDeviation("elements", name), self._after_change or self.ruleset_changed(), key
                    )
        except KernelUnclear:
            self._walk.restart()
            raise
        if self._audit_outline:
            if (found := await self._outline_deviation(belief)) is not None:
                return FoundDrift(found, after_change=self.ruleset_changed())
            self._audit_outline = False
        return None

    async def _deviation_after_change(self, belief: Belief) -> TableDeviation | None:
        generation = self._socket.generation()
        if not self._socket.steps.covers(self._known, generation):
            if (found := await self._outline_deviation(belief)) is not None:
                return found
            self._walk.restart()
            self._after_change = True
        self._known = generation
        return None

    async def _outline_deviation(self, belief: Belief) -> TableDeviation | None:
        outline = await in_thread(partial(self._table.outline, belief.image))
        return outline_deviation(outline, self._specs, self._family, self._options, belief)
