"""From belief and desired image to the least transaction that makes the kernel right (pure)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.belief import Belief, Ownership
from nodeagent.dataplane.nft.carried_counts import Counts, Successors
from nodeagent.dataplane.nft.chain import Program, ProgramOptions
from nodeagent.dataplane.nft.classes import PickClass
from nodeagent.dataplane.nft.desired import classes_in, timeouts_in
from nodeagent.dataplane.nft.diff import Delta, diff_images, diff_keys
from nodeagent.dataplane.nft.image import TableImage, empty_image
from nodeagent.dataplane.nft.picking import pick_chain
from nodeagent.dataplane.nft.program import affinity_chains, build_program, timeout_chains, verdict_elements
from nodeagent.dataplane.nft.schema import SetSpec
from nodeagent.dataplane.nft.transaction import Transaction
from nodeagent.model.addresses import Family


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A transaction and what will be true once it is committed.

    adds_chains: the kernel looks at every element of each map that a rule of theirs reads (nf_tables_bind_set), some 0.4 µs each.
    """

    transaction: Transaction
    delta: Delta
    classes: frozenset[PickClass]
    timeouts: frozenset[int]
    new_table: bool = False
    adds_chains: bool = False


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
    ) -> TablePlan:
        """The least transaction; an empty one when the kernel is right.

        dirty: the keys that may differ; None: compare everything (after a read-back). counts: with what new elements begin, or
        those of a table that is made anew; successors: whose counts these are.
        """
        counts = counts or {}
        if not belief.usable:
            return self.plan_new_table(belief, wanted, counts)
        delta = diff_images(wanted, belief.image) if dirty is None else diff_keys(dirty, wanted, belief.image)
        # After a read-back even an element that is right may lead to a chain that somebody removed.
        leading = wanted if dirty is None else delta.puts
        classes = frozenset(classes_in(leading) | belief.classes)
        timeouts = frozenset(timeouts_in(leading) | belief.timeouts)
        transaction = Transaction(self._family, self._specs)
        if self._owned and not belief.claimed:
            transaction.claim_table(owned=True)
        if not belief.program_right:
            self._rewrite_program(transaction, belief, build_program(self._family, self._options, classes, timeouts))
        else:
            self._add_chains(transaction, belief, classes - belief.classes, timeouts - belief.timeouts)
        transaction.write_delta(delta, counts, successors)
        adds_chains = not belief.program_right or classes != belief.classes or timeouts != belief.timeouts
        return TablePlan(transaction, delta, classes, timeouts, adds_chains=adds_chains)

    @cached_property
    def base_chains(self) -> frozenset[str]:
        """Where the kernel may have to enter the table, whatever is in it: with affinity, too."""
        chains = (*build_program(self._family, self._options, (), ()).chains, *affinity_chains(self._family))
        return frozenset(chain.name for chain in chains if chain.hook)

    def plan_new_table(self, belief: Belief, wanted: TableImage, counts: Counts | None = None) -> TablePlan:
        """Replace whatever is there by a new table, in one transaction: traffic sees the old one or the new one."""
        transaction = Transaction(self._family, self._specs)
        if belief.exists:
            transaction.delete_table()
        transaction.claim_table(owned=self._owned)
        transaction.create_sets()
        classes, timeouts = frozenset(classes_in(wanted)), frozenset(timeouts_in(wanted))
        transaction.write_program(build_program(self._family, self._options, classes, timeouts))
        delta = diff_images(wanted, empty_image(wanted))
        transaction.write_delta(delta, counts)
        transaction.restore_affinity(belief.affinity)
        return TablePlan(transaction, delta, classes, timeouts, new_table=True)

    def _add_chains(
        self, transaction: Transaction, belief: Belief, classes: Iterable[PickClass], timeouts: Iterable[int]
    ) -> None:
        classes, timeouts = sorted(classes), sorted(timeouts)
        if not classes and not timeouts:
            return
        transaction.add_chains(
            (
                *(pick_chain(self._family, pick) for pick in classes),
                *timeout_chains(self._family, self._options, timeouts),
                *(affinity_chains(self._family) if timeouts and not belief.timeouts else ()),
            )
        )
        always = verdict_elements((), ())
        transaction.add_verdicts(
            {
                name: {key: chain for key, chain in elements.items() if key not in always[name]}
                for name, elements in verdict_elements(classes, timeouts).items()
            }
        )

    def _rewrite_program(self, transaction: Transaction, belief: Belief, program: Program) -> None:
        """All rules anew, in place: sets, their elements, counters and learned affinity stay."""
        transaction.flush_rules()
        for name in sorted(schema.PROGRAM_SETS):
            transaction.delete_verdicts(name, belief.verdicts.get(name, {}))
        for name in sorted(belief.chains - {chain.name for chain in program.chains}):
            transaction.delete_chain(name)
        transaction.write_program(program)
