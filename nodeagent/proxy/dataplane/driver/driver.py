"""One family's table: adopt it, bring it to the desired state, repair it.

What we belief_from the kernel holds changes only after a commit succeeded, or from a read-back; after anything unclear the belief is
dropped, and the next pass reads back first. There is no history of changes: a pass after a failure computes the same difference again.

Other processes can change a plain table. Every commit names the generation of the ruleset up to which all changes are known to be ours or
have been checked, and the kernel refuses it if there were others since: then the table is checked first.
"""

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar, cast

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Interrupted, Problem, Retryable
from nodeagent.model.reports import DriftReport, MapFill, TableReport
from nodeagent.proxy.dataplane.driver.affinity_purge import AffinityPurge, PurgeListener
from nodeagent.proxy.dataplane.driver.belief import Belief, Ownership, belief_from
from nodeagent.proxy.dataplane.driver.chain_upkeep import ChainUpkeep
from nodeagent.proxy.dataplane.driver.commit_plan import Planner, TablePlan
from nodeagent.proxy.dataplane.driver.count_keeper import CountKeeper
from nodeagent.proxy.dataplane.driver.early_reading import EarlyReading
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.other_writers import FoundDrift, OtherWriters
from nodeagent.proxy.dataplane.driver.rejections import problems_of, raise_if_unsupported
from nodeagent.proxy.dataplane.driver.ruleset import OWNED_BY_ANOTHER, Ruleset
from nodeagent.proxy.dataplane.driver.standby import Standby
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected, KernelUnclear, NotPermitted, Rejection, StaleGeneration
from nodeagent.proxy.dataplane.image.desired import DesiredImage, concerns, slots_of
from nodeagent.proxy.dataplane.image.image import TableImage
from nodeagent.proxy.dataplane.image.render import too_many_backends
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import ProgramOptions
from nodeagent.proxy.dataplane.program.classes import MAX_BACKENDS
from nodeagent.proxy.dataplane.worker_thread import in_thread

T = TypeVar("T")

INLINE_SERVICES = 100
INLINE_ELEMENTS = 2000
"""Up to these sizes a pass runs on the event loop (a few milliseconds); above, in a worker thread."""
QUARANTINE_ROUNDS = 10
BLAMELESS_ROUNDS = 4
SETTLING_ROUNDS = 3
"""On a busy node connections come between the reading of a counter and the commit that continues it, fewer in each round."""
LOOKS_BEFORE_COMMIT = 3
"""Processes that change the ruleset all the time must not block us: after this many looks, commit first, then look."""
REBUILD_AFTER_FAILURES = 3


class TableListener(PurgeListener, Protocol):
    """Is notified of what the driver does beside the passes; must not raise or block."""

    def drift_found(self, report: DriftReport) -> None:
        """Called when the table is not as programmed any more; a pass repairs it next."""
        ...


class TableDriver:
    """Brings the table of one family to the desired state of its services. The caller runs one pass at a time.

    early: what the first pass need not read, if nobody has changed a ruleset since.
    """

    def __init__(
        self,
        family: Family,
        socket: Ruleset,
        options: ProgramOptions,
        ownership: Ownership,
        listener: TableListener,
        early: EarlyReading | None = None,
    ) -> None:
        self.family = family
        self._listener = listener
        self._socket = socket
        self._options = options
        self._ownership = ownership
        self._specs = options.specs()
        self._table = KernelTable(socket, family, self._specs)
        self._planner = Planner(family, self._specs, options, ownership)
        self._desired = DesiredImage(family)
        self._counts = CountKeeper(family, self._specs, self._table)
        self._standby = Standby(family, self._specs, socket, self._commit_unconditionally)
        self._upkeep = ChainUpkeep()
        self._early = early
        self._belief: Belief | None = None
        self._compare_all = True
        self._claimed = False
        self._failures = 0
        self._looked_back = True
        self._others = OtherWriters(family, self._specs, options, ownership, socket, self._table)
        self._purge = AffinityPurge(family, self._specs, socket, listener, self._others.known)
        self._pending: dict[ObjectKey, ServiceState | None] = {}
        self._states: dict[ObjectKey, ServiceState] = {}
        self._quarantined: dict[ObjectKey, Problem] = {}
        self._oversized: dict[ObjectKey, tuple[Problem, ...]] = {}

    @property
    def belief(self) -> Belief | None:
        """What the kernel is believed to hold; None if it must be read first."""
        return self._belief

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Services that the kernel refused (the rest is in effect), and those with more endpoints than fit."""
        return (
            *self._quarantined.values(),
            *self._desired.affinity.problems.values(),
            *self._desired.timeouts.problems.values(),
            *self._desired.unrendered.values(),
            *(problem for found in self._oversized.values() for problem in found),
        )

    @property
    def fills(self) -> tuple[MapFill, ...]:
        """How many elements each set of services has, as desired."""
        return tuple(MapFill(self.family, name, len(elements)) for name, elements in self._desired.image.items())

    @property
    def uncounted(self) -> Mapping[str, Mapping[bytes, int]]:
        """Connections to add to what the kernel has counted, by map and key."""
        return self._counts.uncounted

    async def sync(
        self, changes: Mapping[ObjectKey, ServiceState | None], node: NodeState, *, compare: bool = False
    ) -> TableReport:
        """Runs one pass: takes in what changed and commits what differs. The only entry of an ordinary pass.

        compare: read the kernel first, and repair all drift.

        Changes are kept if this raises; calling again retries them. Raises Unsupported and NotPermitted (an operator
        must act), CommitRejected and KernelUnclear (try again).
        """
        started = monotonic()
        if compare:
            self.forget()
        self._take_in(changes)
        try:
            belief = self._belief
            if belief is None:
                belief = await in_thread(self._read_back)
                self._readmit_quarantined()
            pending, self._pending = self._pending, {}
            slots = slots_of(pending.values())
            big = len(pending) > INLINE_SERVICES or slots > INLINE_ELEMENTS
            await self._maybe_in_thread(big, lambda: self._apply_changes(pending, slots, node, belief))
            plan = await self._commit_difference()
            seconds = monotonic() - started
            if self._standby.present:
                await in_thread(self._retire_standby)
            await self._keep_chains_up(started)
        except BaseException as error:
            if isinstance(error, Retryable) and not isinstance(error, Interrupted):
                self._failures += 1
            self.forget()
            raise
        self._failures = 0
        report = _report(plan, seconds, read_back=self._looked_back, problems=self.problems)
        affinity = self._desired.affinity
        # Only now: while an endpoint is in the backends, clients can be bound to it.
        self._purge.programmed(affinity.snapshot(), lost=affinity.take_lost() or self._looked_back)
        self._looked_back = False
        return report

    async def settle_counts(self) -> None:
        """Writes the counts that are only known here into the elements, so that they are not lost when this process ends.

        Call it when no pass runs. Raises CommitRejected and KernelUnclear.
        """
        for _ in range(SETTLING_ROUNDS):
            if not any(self.uncounted.values()):
                return
            belief = self._belief
            if belief is None:
                belief = await in_thread(self._read_back)
            plan = await in_thread(partial(self._plan_settling, belief))
            if not await self._commit(plan):
                return

    def _plan_settling(self, belief: Belief) -> TablePlan:
        delta, counts, successors = self._counts.prepare_unsettled(belief.image)
        transaction, nothing = (Transaction(self.family, self._specs) for _ in range(2))
        transaction.write_delta(delta, counts, successors)
        return TablePlan(transaction, delta, frozenset(belief.classes), frozenset(belief.timeouts), nothing, nothing)

    async def run_purge(self) -> None:
        """Purges the affinity of endpoints that left, concurrently with the passes, until cancelled."""
        await self._purge.run()

    async def purge(self) -> bool:
        """Purges the affinity of endpoints that left; returns whether no stale entry is left."""
        return await self._purge.purge()

    def has_other_owner(self) -> bool:
        """Returns whether another living process owns the table, so that nothing can be programmed here. Raises KernelUnclear."""
        header = self._table.header()
        return header is not None and header.owner not in {0, self._socket.port}

    async def changed_by_others(self) -> bool:
        """Returns whether our table is not as programmed any more; if so, the next pass reads back and repairs.

        While nobody else changes the ruleset of this network namespace, this reads the generation (21 µs) and audits the next slice of
        the table. After a foreign change the program and the number of elements are compared at once, and the elements themselves
        faster. An owned table cannot be changed by others; it is only audited.

        Raises KernelUnclear if the kernel did not answer.
        """
        belief = self._belief
        if belief is None:
            return False
        try:
            found = await self._others.find_drift(belief)
        except Interrupted:
            return False  # the known generation stays: the next call looks again
        if found is not None:
            self.forget()
            self._listener.drift_found(self._describe(found))
        return found is not None

    def _describe(self, found: FoundDrift) -> DriftReport:
        kind, detail = found.deviation
        if found.key is not None:
            owner = self._desired.owner_of(detail, found.key)
            detail = f"an element of {f'Service {owner}' if owner else 'the node'} in {detail} is gone or another one"
        return DriftReport(self.family.value, kind, detail, found.after_change)

    def forget(self) -> None:
        """Drops the belief: the next pass reads the kernel and repairs all drift."""
        self._belief = None

    def _read_back(self) -> Belief:
        early, self._early = self._early, None
        if early is not None and self._others.begin_at(early.generation):
            contents = early.contents
        else:
            self._others.begin()
            contents = self._table.read()
        belief = belief_from(contents, self._specs, self.family, self._options, self._ownership)
        belief.claimed = self._claimed
        self._standby.find()
        self._belief = belief
        self._compare_all = self._looked_back = True
        return belief

    def _take_in(self, changes: Mapping[ObjectKey, ServiceState | None]) -> None:
        """Adds the changes of services that have, had or shall have elements in this table: nearly all have a single family."""
        for key, state in changes.items():
            if key in self._states or key in self._pending or concerns(state, self.family):
                self._pending[key] = state

    def _apply_changes(
        self, changes: Mapping[ObjectKey, ServiceState | None], slots: int, node: NodeState, belief: Belief
    ) -> None:
        """slots: the endpoints of all these services together."""
        for key, state in changes.items():
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state
            self._quarantined.pop(key, None)
            self._oversized.pop(key, None)
            if slots > MAX_BACKENDS and state is not None and (found := too_many_backends(state)):
                self._oversized[key] = found
        if self._desired.is_new and belief.usable:
            # The image is as it was read: nothing is programmed yet.
            self._desired.take_over(cast("TableImage", belief.image), belief.lists)
            belief.image, belief.lists = self._desired.programmed, {}
            self._compare_all = False
        self._desired.update(changes, belief.image)
        self._desired.set_node(node)

    async def _commit_difference(self) -> TablePlan | None:
        """Commits the difference; returns what was committed, None if nothing can differ.

        Leaves out and reports a service whose elements the kernel refuses; the rest is committed.

        A refusal may be due to a change by another process that we do not know yet: read back before blaming a service.
        """
        dirty = sum(map(len, self._desired.dirty.values()))
        if not (self._looked_back or dirty or self._failures):
            return None
        for attempt in range(QUARANTINE_ROUNDS):
            big = self._looked_back or dirty > INLINE_ELEMENTS
            try:
                plan = await self._plan(big)
                big = big or plan.delta.touched > INLINE_ELEMENTS
                if not await self._commit(plan):
                    await in_thread(self._read_back)
                    continue
            except CommitRejected as error:
                if attempt == 0 or (attempt < BLAMELESS_ROUNDS and self._others.ruleset_changed()):
                    await in_thread(self._read_back)
                    continue
                raise_if_unsupported(error.rejections, self.family)
                if not self._quarantine(error.rejections):
                    raise
                await in_thread(self._read_back)  # some steps may have been committed
                continue
            await self._maybe_in_thread(big, partial(self._committed, plan))
            return plan
        raise KernelUnclear(f"transactions rejected {QUARANTINE_ROUNDS} times in one pass")

    async def _commit(self, plan: TablePlan) -> bool:
        """Commits all steps; returns False if others changed the table, which must be read back then."""
        big = plan.adds_chains or plan.delta.touched > INLINE_ELEMENTS
        for step in plan.steps:
            echoes = await self._commit_step(step, new_table=plan.new_table, big=big)
            if echoes is None:
                return False
            if step is plan.transaction:
                self._counts.committed(plan.delta.deletes, echoes)
        return True

    async def _commit_step(self, step: Transaction, *, new_table: bool, big: bool) -> list[bytes] | None:
        """Commits one step; returns the deletions that the kernel reports, or None if others changed the table."""
        belief = self._belief
        assert belief is not None, "a plan was made from a belief"
        # A table that is not complete yet looks like a table that others changed.
        for _ in range(LOOKS_BEFORE_COMMIT if belief.is_intact and not new_table else 1):
            try:
                return await self._maybe_in_thread(big, partial(self._socket.commit, step, self._others.known()))
            except StaleGeneration:
                if belief.is_intact and not await self._others.is_undisturbed(belief):
                    return None
        # The known generation stays, and the next look is a full one.
        return await self._maybe_in_thread(big, partial(self._socket.commit, step))

    def _commit_unconditionally(self, transaction: Transaction) -> None:
        try:
            self._socket.commit(transaction, self._others.known())
        except StaleGeneration:
            self._socket.commit(transaction)

    async def _plan(self, big: bool) -> TablePlan:
        belief = self._belief
        assert belief is not None, "a pass reads back before it plans"
        if belief.usable and not self._planner.base_chains <= belief.chains:
            self._claim(belief)
        rebuild = self._failures >= REBUILD_AFTER_FAILURES
        anew = rebuild or not belief.usable
        wanted, looked_at = self._desired.image, None if self._compare_all else self._desired.dirty
        if belief.exists and anew:
            await in_thread(partial(self._let_standby_serve, belief, wanted))

        def plan() -> TablePlan:
            counts, successors = self._counts.prepare(belief, wanted, looked_at, anew=anew)
            if rebuild:
                return self._planner.plan_new_table(belief, wanted, counts)
            return self._planner.plan(belief, wanted, looked_at, counts, successors, after_reading=self._looked_back)

        return await self._maybe_in_thread(big, plan)

    def _let_standby_serve(self, belief: Belief, wanted: TableImage) -> None:
        if self.has_other_owner():
            raise NotPermitted(OWNED_BY_ANOTHER)
        valid = self._desired.affinity.snapshot()
        self._standby.serve(partial(self._planner.plan_standby, wanted), valid)
        belief.affinity = self._standby.learned(valid)

    def _retire_standby(self) -> None:
        """Removes the standby table, after our table serves its connections again."""
        assert self._belief is not None, "a pass ends with a belief"
        counts = self._standby.retire(self._desired.affinity.snapshot())
        self._counts.add_missed(counts, self._belief.image)

    async def _keep_chains_up(self, now: float) -> None:
        """Removes chains to which nothing has led for a while, and adds a spare one. Learned affinity stays."""
        belief = self._belief
        assert belief is not None, "a pass ends with a belief"
        if not self._upkeep.due(now, belief):
            return
        big = len(belief.image[schema.FRONTENDS]) > INLINE_ELEMENTS
        upkeep = await self._maybe_in_thread(big, partial(self._upkeep.look, now, belief))
        if not upkeep:
            return
        step = self._planner.plan_upkeep(upkeep, belief)
        if await self._commit_step(step, new_table=False, big=True) is None:
            self.forget()
            return
        belief.classes = belief.classes - upkeep.unused | upkeep.missing
        belief.timeouts -= upkeep.timeouts

    def _claim(self, belief: Belief) -> None:
        """Takes over an owned table in a transaction of its own: in the same one, the kernel accepts no new base chain
        (nf_tables_addchain)."""
        if self._ownership is Ownership.OWNED and not belief.claimed:
            transaction = Transaction(self.family, self._specs)
            transaction.claim_table(owned=True)
            self._socket.commit(transaction)
            self._claimed = belief.claimed = True

    def _committed(self, plan: TablePlan) -> None:
        belief = self._belief
        assert belief is not None, "a plan was made from a belief"
        self._desired.settle()
        belief.image, belief.lists = self._desired.programmed, {}
        belief.exists = belief.usable = belief.program_right = True
        belief.classes, belief.timeouts = set(plan.classes), set(plan.timeouts)
        belief.affinity = {}
        self._claimed = belief.claimed = self._ownership is Ownership.OWNED
        self._compare_all = False
        if plan.new_table and (header := self._table.header()) is not None:
            belief.handle = header.handle

    def _readmit_quarantined(self) -> None:
        """After a read-back, retries the services that the kernel refused: the cause may have disappeared."""
        for key in self._quarantined:
            self._pending.setdefault(key, self._states.get(key))

    def _quarantine(self, rejections: tuple[Rejection, ...]) -> bool:
        """Takes out the services of the refused elements; returns False if none could be identified."""
        owners = problems_of(rejections, self._desired.owner_of)
        belief = self._belief
        if not owners or belief is None:
            return False
        self._quarantined.update(owners)
        self._desired.update(dict.fromkeys(owners), belief.image)
        return True

    async def _maybe_in_thread(self, big: bool, work: Callable[[], T]) -> T:
        return await in_thread(work) if big else work()


def _report(plan: TablePlan | None, seconds: float, *, read_back: bool, problems: tuple[Problem, ...]) -> TableReport:
    if plan is None:
        return TableReport(seconds=seconds, read_back=read_back, problems=problems)
    messages = sum([len(step.messages) for step in plan.steps])
    return TableReport(plan.delta.touched, messages, plan.new_table, seconds, None, read_back, problems)
