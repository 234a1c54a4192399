"""Computes from belief and desired image the smallest transactions that correct the kernel (pure).

A transaction is atomic with two exceptions (nf_tables_api.c, nf_tables_commit). A packet that is in the table at that instant still
sees the old rules, which for a new chain are empty, and may find new elements already: so chains are committed before the
elements that lead to them. And the kernel publishes ranges only after all the rest of a transaction: so a new table gets its hooks
in a transaction of their own, rules that read other ranges come after these, and old ranges are deleted before new ones replace them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.belief import Belief, LearnedAffinity, Ownership
from nodeagent.proxy.dataplane.driver.chain_upkeep import Upkeep
from nodeagent.proxy.dataplane.driver.spare_classes import classes_with_chains
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.image.carried_counts import Counts, Successors
from nodeagent.proxy.dataplane.image.delta import Delta, diff_images, diff_keys
from nodeagent.proxy.dataplane.image.image import TableImage, classes_in, empty_image, timeouts_in
from nodeagent.proxy.dataplane.image.range_changes import split_delta
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import Program, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass
from nodeagent.proxy.dataplane.program.picking import pick_chain
from nodeagent.proxy.dataplane.program.program import (
    affinity_chains,
    behind,
    build_program,
    leading_elements,
    timeout_chains,
)
from nodeagent.proxy.dataplane.program.schema import SetSpec


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A transaction and what will be true once it is committed.

    ahead: what is committed before it. hooks: what is committed after it, the base chains of a new table.
    adds_chains: the kernel looks at every element of each map that a rule of theirs reads (nf_tables_bind_set), some 0.4 µs each.
    """

    transaction: Transaction
    delta: Delta
    classes: frozenset[PickClass]
    timeouts: frozenset[int]
    ahead: Transaction
    hooks: Transaction
    new_table: bool = False
    adds_chains: bool = False

    @property
    def steps(self) -> tuple[Transaction, ...]:
        """The transactions that are not empty, in the order in which they are committed."""
        return tuple(step for step in (self.ahead, self.transaction, self.hooks) if not step.empty)


class Planner:
    """Plans for one family's table; holds only what never changes."""

    def __init__(
        self, family: Family, specs: Mapping[str, SetSpec], options: ProgramOptions, ownership: Ownership
    ) -> None:
        self._family = family
        self._specs = specs
        self._options = options
        self._owned = ownership is Ownership.OWNED

    def plan(
        self,
        belief: Belief,
        wanted: TableImage,
        dirty: Mapping[str, Iterable[bytes]] | None,
        counts: Counts | None = None,
        successors: Successors | None = None,
        *,
        after_reading: bool = False,
    ) -> TablePlan:
        """Returns the smallest transaction; an empty one if the kernel is right.

        dirty: the keys that may differ; None: compare everything. after_reading: the belief comes from a read-back.
        counts: the initial counters of new elements, or of those of a rebuilt table; successors: which element each count comes from.
        """
        counts = counts or {}
        if not belief.usable:
            return self.plan_new_table(belief, wanted, counts)
        delta = diff_images(wanted, belief.image) if dirty is None else diff_keys(dirty, wanted, belief.image)
        # After a read-back even a correct element may lead to a chain that another process removed.
        leading = wanted if after_reading or dirty is None else delta.puts
        classes = frozenset(classes_in(leading) | belief.classes)
        timeouts = frozenset(timeouts_in(leading) | belief.timeouts)
        ahead, transaction = self._begin(), self._begin()
        if self._owned and not belief.claimed:
            ahead.claim_table(owned=True)
        new_classes, new_timeouts = classes - belief.classes, timeouts - belief.timeouts
        led = self._add_chains(ahead, belief, new_classes, new_timeouts)
        first, rest = split_delta(delta, wanted, rewritten=not belief.program_right)
        ahead.write_delta(first)
        if not belief.program_right:
            program = build_program(self._family, self._options, classes, timeouts)
            self._rewrite_program(transaction, belief, program, led)
        transaction.write_delta(rest, counts, successors)
        adds_chains = not belief.program_right or bool(new_classes or new_timeouts)
        return TablePlan(transaction, delta, classes, timeouts, ahead, self._begin(), adds_chains=adds_chains)

    def plan_upkeep(self, upkeep: Upkeep, belief: Belief) -> Transaction:
        """Returns a transaction that removes chains to which nothing jumps, and adds spare ones. With the last affinity timeout the elements
        that lead to affinity chains are removed, too."""
        transaction = self._begin()
        last = bool(upkeep.timeouts) and upkeep.timeouts == belief.timeouts
        for name, elements in leading_elements(upkeep.unused, upkeep.timeouts).items():
            transaction.delete_verdicts(name, elements)
        for chain in reversed(affinity_chains(self._family) if last else ()):
            transaction.delete_chain(chain.name)
        for pick in sorted(upkeep.unused):
            transaction.delete_chain(pick.chain)
        for learn in timeout_chains(self._family, self._options, sorted(upkeep.timeouts)):
            transaction.delete_chain(learn.name)
        self._add_chains(transaction, belief, upkeep.missing, ())
        return transaction

    def _begin(self) -> Transaction:
        return Transaction(self._family, self._specs)

    @cached_property
    def base_chains(self) -> frozenset[str]:
        """The base chains that a table may need, whatever its contents: including those of affinity."""
        chains = (*build_program(self._family, self._options, (), ()).chains, *affinity_chains(self._family))
        return frozenset(chain.name for chain in chains if chain.hook)

    def plan_new_table(self, belief: Belief, wanted: TableImage, counts: Counts | None = None) -> TablePlan:
        """Plans to replace any table of our name by a new one. The old table has no hooks any more; the new one gets its hooks last."""
        transaction, hooks = self._begin(), self._begin()
        if belief.exists:
            transaction.delete_table()
        delta, program = self._fill(transaction, wanted, counts, belief.affinity, self._options)
        hooks.hook(program)
        classes, timeouts = frozenset(classes_with_chains(wanted)), frozenset(timeouts_in(wanted))
        return TablePlan(transaction, delta, classes, timeouts, self._begin(), hooks, new_table=True)

    def plan_standby(self, wanted: TableImage, learned: LearnedAffinity) -> tuple[Transaction, Transaction]:
        """Returns two transactions: a second table with the same content, and its hooks, each right behind that of our table. It
        offloads no connection: those of our table go through the chains until that one is rebuilt."""
        filled, hooks = (Transaction(self._family, self._specs, schema.STANDBY_TABLE) for _ in range(2))
        _, program = self._fill(filled, wanted, None, learned, replace(self._options, flowtable=False))
        hooks.hook(behind(program))
        return filled, hooks

    def _fill(
        self,
        transaction: Transaction,
        wanted: TableImage,
        counts: Counts | None,
        learned: LearnedAffinity,
        options: ProgramOptions,
    ) -> tuple[Delta, Program]:
        """Adds everything of a table except its hooks."""
        transaction.claim_table(owned=self._owned)
        transaction.create_sets()
        program = build_program(self._family, options, classes_with_chains(wanted), timeouts_in(wanted))
        transaction.write_unhooked(program)
        delta = diff_images(wanted, empty_image(wanted))
        transaction.write_delta(delta, counts)
        transaction.restore_affinity(learned)
        return delta, program

    def _add_chains(
        self, transaction: Transaction, belief: Belief, classes: Iterable[PickClass], timeouts: Iterable[int]
    ) -> dict[str, dict[bytes, str]]:
        """Adds chains; returns the elements that lead to them."""
        classes, timeouts = sorted(classes), sorted(timeouts)
        if not classes and not timeouts:
            return {}
        transaction.add_chains(
            (
                *(pick_chain(self._family, pick) for pick in classes),
                *timeout_chains(self._family, self._options, timeouts),
                *(affinity_chains(self._family) if timeouts and not belief.timeouts else ()),
            )
        )
        led = leading_elements(classes, timeouts)
        transaction.add_verdicts(led)
        return led

    def _rewrite_program(
        self, transaction: Transaction, belief: Belief, program: Program, led: Mapping[str, Mapping[bytes, str]]
    ) -> None:
        """Rewrites all rules in place: sets, their elements, counters and learned affinity stay. led: verdicts added just before."""
        transaction.flush_rules()
        for name in sorted(schema.PROGRAM_SETS):
            transaction.delete_verdicts(name, {**belief.verdicts.get(name, {}), **led.get(name, {})})
        for name in sorted(belief.chains - {chain.name for chain in program.chains}):
            transaction.delete_chain(name)
        for name in sorted(belief.flowtables - {program.flowtable}):
            transaction.delete_flowtable(name)
        transaction.write_program(program)
