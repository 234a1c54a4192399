"""One family's table: adopt it, bring it to the desired state, repair it.

What we believe the kernel holds changes only after a commit succeeded, or from a read-back; after anything unclear it
is dropped, and the next pass reads back first. There is no history of changes: a pass after a failure computes the
same difference again.
"""

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TypeVar

from nodeagent.dataplane.errors import CommitRejected, KernelUnclear, Rejection, Unsupported
from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.affinity import stale_entries
from nodeagent.dataplane.nft.belief import Belief, Ownership, believe, undisturbed
from nodeagent.dataplane.nft.chain import ProgramOptions
from nodeagent.dataplane.nft.desired import DesiredImage
from nodeagent.dataplane.nft.diff import Delta, apply_delta
from nodeagent.dataplane.nft.kernel_table import KernelTable
from nodeagent.dataplane.nft.netlink import NetlinkSocket
from nodeagent.dataplane.nft.plan import Plan, Planner
from nodeagent.dataplane.nft.render import too_many_backends
from nodeagent.dataplane.nft.transaction import Transaction
from nodeagent.dataplane.worker_thread import in_thread
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem, Retryable

T = TypeVar("T")

INLINE_SERVICES = 100
INLINE_ELEMENTS = 2000
"""Up to these sizes a pass runs on the event loop (a few milliseconds); above, in a worker thread."""
QUARANTINE_ROUNDS = 10
PURGE_ROUNDS = 5
REBUILD_AFTER_FAILURES = 3
_UNSUPPORTED = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.EAFNOSUPPORT})


@dataclass(frozen=True, slots=True)
class TableReport:
    """What one pass did: elements touched, messages sent, whether the table was made anew, seconds it took."""

    touched: int = 0
    messages: int = 0
    new_table: bool = False
    seconds: float = 0.0


class TableDriver:
    """Brings the table of one family to what its services want. One pass at a time; the caller sees to that."""

    def __init__(self, family: Family, socket: NetlinkSocket, options: ProgramOptions, ownership: Ownership) -> None:
        self.family = family
        self._socket = socket
        self._options = options
        self._ownership = ownership
        self._specs = {spec.name: spec for spec in schema.set_specs(counters=options.counters)}
        self._table = KernelTable(socket, family, self._specs)
        self._planner = Planner(family, self._specs, options, ownership)
        self._desired = DesiredImage(family)
        self._belief: Belief | None = None
        self._compare_all = True
        self._claimed = False
        self._failures = 0
        self._generation = -1
        self._stale_affinity = True
        self._pending: dict[ObjectKey, ServiceState | None] = {}
        self._states: dict[ObjectKey, ServiceState] = {}
        self._quarantined: dict[ObjectKey, Problem] = {}
        self._oversized: dict[ObjectKey, tuple[Problem, ...]] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Services the kernel refused (the rest is in effect), and ones with more endpoints than fit."""
        return (
            *self._quarantined.values(),
            *self._desired.affinity.problems.values(),
            *self._desired.unrendered.values(),
            *(problem for found in self._oversized.values() for problem in found),
        )

    async def sync(self, changes: Mapping[ObjectKey, ServiceState | None], node: NodeState) -> TableReport:
        """One pass: take in what changed and commit what differs.

        Changes are kept when this raises; calling again retries them. Raises Unsupported and NotPermitted (somebody
        must act), CommitRejected and KernelUnclear (try again).
        """
        started = monotonic()
        self._pending.update(changes)
        try:
            belief = self._belief
            if belief is None:
                belief = await in_thread(self._read_back)
                self._readmit_quarantined()
            pending, self._pending = self._pending, {}
            await self._maybe_in_thread(len(pending) > INLINE_SERVICES, lambda: self._take_in(pending, node, belief))
            report = await self._commit_difference(started)
            await self._purge_affinity()
        except BaseException as error:
            if isinstance(error, Retryable):
                self._failures += 1
            self.forget()
            raise
        self._failures = 0
        return report

    async def changed_by_others(self) -> bool:
        """Whether somebody else changed our table since the last pass; if so, the next pass reads back and repairs.

        While nothing changed in the ruleset of this network namespace it is one look at the generation (21 µs).
        An owned table nobody else can change.
        """
        belief = self._belief
        if self._ownership is Ownership.OWNED or belief is None:
            return False
        generation = self._socket.generation()
        if generation == self._generation:
            return False
        outline = await in_thread(self._table.outline)
        self._generation = generation
        if undisturbed(outline, self._specs, self.family, self._options, belief):
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """Drop the belief: the next pass reads the kernel and repairs whatever drifted."""
        self._belief = None

    def _read_back(self) -> Belief:
        contents = self._table.read()
        belief = believe(contents, self._specs, self.family, self._options, self._ownership)
        belief.claimed = self._claimed
        if contents is not None and not belief.usable and contents.fits(self._specs, self.family):
            contents.affinity = self._table.elements(schema.AFFINITY)
            belief = believe(contents, self._specs, self.family, self._options, self._ownership)
        self._belief = belief
        self._compare_all = True
        return belief

    def _take_in(self, changes: Mapping[ObjectKey, ServiceState | None], node: NodeState, belief: Belief) -> None:
        for key, state in changes.items():
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state
            self._quarantined.pop(key, None)
            self._oversized.pop(key, None)
            if state is not None and (found := too_many_backends(state)):
                self._oversized[key] = found
        self._desired.update(changes, belief.image)
        self._desired.set_node(node)

    async def _commit_difference(self, started: float) -> TableReport:
        """Commit; a service whose elements the kernel refuses is left out and reported, and the rest commits.

        The first refusal may be due to somebody's change that we do not know of yet: read back before blaming anyone.
        """
        for attempt in range(QUARANTINE_ROUNDS):
            plan = self._plan()
            if plan.transaction.empty:
                self._committed(plan)
                return TableReport(seconds=monotonic() - started)
            big = plan.delta.touched > INLINE_ELEMENTS
            try:
                await self._maybe_in_thread(big, partial(self._socket.commit, plan.transaction))
            except CommitRejected as error:
                if attempt == 0:
                    await in_thread(self._read_back)
                    continue
                self._raise_if_unsupported(error.rejections)
                if not self._quarantine(error.rejections):
                    raise
                self._compare_all = True
                continue
            self._committed(plan)
            return TableReport(
                plan.delta.touched, len(plan.transaction.messages), plan.new_table, monotonic() - started
            )
        raise KernelUnclear(f"transactions rejected {QUARANTINE_ROUNDS} times in one pass")

    async def _purge_affinity(self) -> None:
        """Forget clients of endpoints that left, after the endpoints are out of the backends.

        An entry that expires between the dump and the deletion makes the kernel refuse the deletion: look again.
        """
        self._stale_affinity = self._desired.affinity.take_lost() or self._stale_affinity
        for _ in range(PURGE_ROUNDS):
            if not self._stale_affinity:
                return
            self._stale_affinity = await in_thread(self._delete_stale_affinity)

    def _delete_stale_affinity(self) -> bool:
        """Whether some are left."""
        learned = self._table.elements(schema.AFFINITY).elements
        stale = stale_entries(learned, self._desired.affinity.endpoints)
        transaction = Transaction(self.family, self._specs)
        transaction.write_delta(Delta(deletes={schema.AFFINITY: stale} if stale else {}))
        try:
            self._socket.commit(transaction)
        except CommitRejected:
            return True
        if stale and self._ownership is Ownership.PLAIN:
            self._generation = self._socket.generation()
        return bool(stale)

    def _plan(self) -> Plan:
        belief = self._belief
        assert belief is not None, "a pass reads back before it plans"
        dirty = self._desired.take_dirty()
        if self._failures >= REBUILD_AFTER_FAILURES:
            return self._planner.plan_new_table(belief, self._desired.image)
        return self._planner.plan(belief, self._desired.image, None if self._compare_all else dirty)

    def _committed(self, plan: Plan) -> None:
        belief = self._belief
        assert belief is not None, "a plan was made from a belief"
        if plan.new_table:
            belief.image = {name: dict(elements) for name, elements in self._desired.image.items()}
        else:
            apply_delta(belief.image, plan.delta)
        belief.exists = belief.usable = belief.program_right = True
        belief.classes, belief.timeouts = set(plan.classes), set(plan.timeouts)
        belief.affinity = {}
        self._claimed = belief.claimed = self._ownership is Ownership.OWNED
        self._compare_all = False
        if self._ownership is Ownership.PLAIN:
            if plan.new_table and (header := self._table.header()) is not None:
                belief.handle = header.handle
            self._generation = self._socket.generation()

    def _raise_if_unsupported(self, rejections: tuple[Rejection, ...]) -> None:
        """Rules and sets are the same on every machine: one that is refused is something the kernel cannot do."""
        for item in rejections:
            if not item.set and item.errno in _UNSUPPORTED and item.about.startswith(("rule", "set", "chain")):
                raise Unsupported(
                    f"this kernel cannot do what {item.about} of table {self.family.value} needs: {item.reason}"
                )

    def _readmit_quarantined(self) -> None:
        """After a look at the kernel, what it refused is tried once more: the cause may be gone."""
        for key in self._quarantined:
            self._pending.setdefault(key, self._states.get(key))

    def _quarantine(self, rejections: tuple[Rejection, ...]) -> bool:
        """Take out the services of the refused elements; False when none could be named."""
        owners: dict[ObjectKey, Problem] = {}
        for item in rejections:
            owner = None if item.key is None else self._desired.owner_of(item.set, item.key)
            if owner is not None:
                detail = f"the kernel refused an element of {item.set}: {item.reason}; the service is left out"
                owners[owner] = Problem(f"Service {owner}", "RejectedByKernel", detail)
        belief = self._belief
        if not owners or belief is None:
            return False
        self._quarantined.update(owners)
        self._desired.update(dict.fromkeys(owners), belief.image)
        return True

    async def _maybe_in_thread(self, big: bool, work: Callable[[], T]) -> T:
        return await in_thread(work) if big else work()
