"""The pass: take changes, translate, program, report; and the loop that decides when the next one runs.

A pass runs at once if the agent is idle, but never sooner than `min_period_seconds` after the last; many changes share passes
(`model.spacing`). The order inside one:
old ClusterIPs are removed from the interface first, then the tables change, then new ClusterIPs are added to the interface,
so that no address is ever local without the rules that protect the host's own daemons.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.frontend import NamesHere, NodeState, ServiceState
from nodeagent.model.in_use import InUse
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Interrupted, Problem, Retryable, Unusable
from nodeagent.model.protected import Protected
from nodeagent.model.reports import PassReport, TableReport
from nodeagent.model.snapshot import Snapshot
from nodeagent.model.spacing import Spacing
from nodeagent.proxy.engine.change_queue import ChangeQueue, ChangeSet
from nodeagent.proxy.engine.cluster_ips import ClusterIps
from nodeagent.proxy.engine.needed_parts import FlowCleaner, Heartbeat, Interface, Observer, Table
from nodeagent.proxy.engine.reader_window import ReaderWindow, Sockets
from nodeagent.proxy.engine.udp_changes import UdpChanges
from nodeagent.proxy.translate.context import Context
from nodeagent.proxy.translate.node_ports import has_node_port, relevant_problems
from nodeagent.proxy.translate.node_state import TranslationOptions, node_context, node_state
from nodeagent.proxy.translate.translator import Translator, translation_size

logger = logging.getLogger(__name__)

THREAD_ABOVE = 2000
"""Dirty services of a greater size than this (about 15 ms of translation) are translated in a worker thread."""
FATAL_FAILURES = 8
"""After this many failures in a row, including a rebuild of the table, the process gives up."""


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds, 0 for never.

    min_period_seconds: from the end of a pass to the next.
    resync_period_seconds: between translations of all objects, changed or not.
    full_sync_period_seconds: between comparisons with everything that the kernel holds.
    guard_period_seconds: between checks whether other processes changed our tables.
    """

    min_period_seconds: float = 0.0
    resync_period_seconds: float = 900.0
    full_sync_period_seconds: float = 3600.0
    guard_period_seconds: float = 0.5
    backoff: Backoff = field(default_factory=Backoff)


class SyncFailedError(Exception):
    """Programming failed so many times that a restart is the better cure; the text, one line, says what failed."""


@dataclass(slots=True)
class _Belief:
    """What the engine carries from pass to pass: derived from snapshots, never from events. node_sources: what context and node
    were computed from."""

    node_sources: tuple[object, ...] = ()
    context: Context | None = None
    node: NodeState = field(default_factory=NodeState)
    node_problems: tuple[Problem, ...] = ()
    service_problems: dict[ObjectKey, tuple[Problem, ...]] = field(default_factory=dict)
    node_port_services: set[ObjectKey] = field(default_factory=set)


class _Periodic:
    """Something that is due one period after it was last done; never with a period of 0."""

    def __init__(self, period_seconds: float, now: float) -> None:
        self._period_seconds = period_seconds
        self.next = now + period_seconds if period_seconds > 0 else None

    def take(self, now: float) -> bool:
        """Returns whether it is due; if so, starts the next period."""
        if self.next is None or now < self.next:
            return False
        self.next = now + self._period_seconds
        return True


class Engine:
    """Runs passes until cancelled, one at a time. Nothing else calls the drivers."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        changes: ChangeQueue,
        options: TranslationOptions,
        tables: Sequence[Table],
        interface: Interface | None,
        flows: FlowCleaner,
        observer: Observer,
        heartbeat: Heartbeat,
        timing: Timing,
        in_use: Callable[[], frozenset[InUse]] = frozenset,
        protected: Callable[[], Protected] = Protected,
        own_addresses: frozenset[str] = frozenset(),
        names: Callable[[], NamesHere] = NamesHere,
        sockets: Callable[[], Sockets] = dict,
    ) -> None:
        """All callables return the present state.

        in_use: networks that service ranges must not overlap.
        protected: what external addresses and node ports may not capture.
        own_addresses: what the service interface carries besides the ClusterIPs.
        names: where this node answers DNS queries.
        sockets: the sockets by which other processes read the ruleset.
        """
        self._names = names
        self._in_use = in_use
        self._protected = protected
        self._snapshot = snapshot
        self._changes = changes
        self._options = options
        self._tables = tuple(tables)
        self._flows = flows
        self._observer = observer
        self._heartbeat = heartbeat
        self._timing = timing
        self._translator = Translator()
        self._udp = UdpChanges()
        self.own_addresses = own_addresses
        self._belief = _Belief()
        self._cluster_ips = ClusterIps(interface, own_addresses)
        self._failures = dict.fromkeys((table.family for table in self._tables), 0)
        self._last_errors: dict[Family, Retryable | Unusable] = {}
        self._retry_at: float | None = None
        self._look_at = 0.0
        self._disturbed: set[str] = set()
        self._doubtful: set[Family] = set()
        """Families whose last pass failed; it may have repaired the table nevertheless."""
        self._readers = ReaderWindow(sockets)
        self._spacing = Spacing()

    @property
    def states(self) -> Mapping[ObjectKey, ServiceState]:
        """The desired state of every Service, conflicts resolved. A live view."""
        return self._translator.states

    @property
    def context(self) -> Context | None:
        """The context of the last pass; None before the first."""
        return self._belief.context

    @property
    def node(self) -> NodeState:
        """The state of the node that was last written to the tables."""
        return self._belief.node

    async def run(self) -> None:
        """Runs the first pass when the first full lists are there, then one whenever something changes.

        Raises SyncFailedError if a family cannot be programmed after many attempts, and every error of a driver that a retry cannot cure.
        """
        loop = asyncio.get_running_loop()
        await self.first_pass()
        now = loop.time()
        resync = _Periodic(self._timing.resync_period_seconds, now)
        full_sync = _Periodic(self._timing.full_sync_period_seconds, now)
        while True:
            await self._wait_for_work(resync, full_sync)
            if not self._disturbed:
                if wait_seconds := self._spacing.wait_seconds(loop.time()):
                    await asyncio.sleep(wait_seconds)
                await self._readers.wait()
                self._heartbeat.beat()
            now = loop.time()
            self._spacing.take(now)
            compare = full_sync.take(now)
            await self._run_pass(self._changes.take(), full=resync.take(now) or compare, compare=compare)
            self._give_up_if_hopeless()
            await self._rest(self._timing.min_period_seconds)

    async def first_pass(self, *, every_family: bool = False) -> PassReport:
        """Waits for the first full lists, then programs everything; retries until one family works.

        every_family: until all work; then also raises the errors of any of them that a person must act on.
        """
        await self._changes.wait_synced()
        enough = all if every_family else any
        while True:
            report = await self._run_pass(self._changes.take(), full=True)
            if enough(table.ok for table in report.families.values()):
                return report
            self._give_up_if_hopeless(enough=any if every_family else all)
            await self._rest(self._timing.backoff.seconds(max(1, *self._failures.values())))

    async def _rest(self, seconds: float) -> None:
        """Sleeps for this long, and sends heartbeats meanwhile."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > self._timing.guard_period_seconds:
            self._heartbeat.beat()
            await asyncio.sleep(self._timing.guard_period_seconds)
        await asyncio.sleep(max(0.0, left))

    async def _wait_for_work(self, *periods: "_Periodic") -> None:
        """Waits until there is a reason for a pass: a change, a period, a retry, or a change of our tables by another process.

        An endless stream of changes must not prevent the check of the tables.
        """
        loop = asyncio.get_running_loop()
        while True:
            self._heartbeat.beat()
            if loop.time() >= self._look_at:
                interfered = await self._others_interfered()
                self._look_at = loop.time() + self._timing.guard_period_seconds
                if interfered:
                    return
            due = [period.next for period in periods if period.next is not None]
            if self._retry_at is not None:
                due.append(self._retry_at)
            if await self._changes.wait_until(min(self._look_at, *due)):
                return
            if any(loop.time() >= at for at in due):
                return

    async def _others_interfered(self) -> bool:
        interfered = False
        for table in self._tables:
            try:
                changed = await table.changed_by_others()
            except (Retryable, OSError) as error:
                logger.warning("cannot look at table nodeagent (%s), trying again: %s", table.family.value, error)
                continue
            if changed:
                logger.warning("table nodeagent (%s) was changed by another process: repairing", table.family.value)
                self._disturbed.add(table.family.value)
                interfered = True
        return interfered

    async def _run_pass(self, changes: ChangeSet, *, full: bool, compare: bool = False) -> PassReport:
        """Runs one pass, step by step. compare: with what the kernel holds, not with what it is believed to hold."""
        started = asyncio.get_running_loop().time()
        context, node = self._look_at_node()
        changed = await self._translate(changes, context, everything=full)
        self._heartbeat.beat()
        self._udp.note(changed)
        self._note_services(changed)
        gone, new = self._choose_cluster_ips(changed, context, node, reread=compare or changes.interface)
        if changes.interface:
            self._disturbed.add("interface")
        foreign = self._other_agent_owns_tables()
        if not foreign:
            await self._cluster_ips.remove_unused(gone)
        families = {
            table.family: await self._sync_table(table, changed, node, compare=compare) for table in self._tables
        }
        if any(table.messages for table in families.values()):
            self._readers.committed()
        programmed = frozenset(family for family, table in families.items() if table.ok)
        self._end_stale_flows(families, programmed)
        await self._cluster_ips.add_new(new, programmed, elsewhere=foreign and not programmed)
        finished = asyncio.get_running_loop().time()
        self._plan_retry(finished, all_ok=len(programmed) == len(families))
        report = PassReport(
            started=started,
            finished=finished,
            changed=changed,
            services=len(self._translator.states),
            full=full,
            waited_seconds=0.0 if changes.oldest is None else started - changes.oldest,
            families=families,
            problems=self._problems(families.values()),
            node=node,
            dirty=changes.services,
            disturbed=frozenset(self._disturbed),
            interface_in_sync=self._cluster_ips.is_in_sync,
        )
        self._disturbed.clear()
        self._changes.finish()
        self._observer.passed(report)
        return report

    def _look_at_node(self) -> tuple[Context, NodeState]:
        """Computes context and state of the node from its object, its addresses and the options, and remembers them.

        Returns what it remembers while these are the same: both functions are pure, and of their own result they make it again.
        """
        belief, snapshot = self._belief, self._snapshot
        service_cidrs, in_use, protected, names = (
            snapshot.service_cidrs,
            self._in_use(),
            self._protected(),
            self._names(),
        )
        sources = (snapshot.node, service_cidrs, in_use, protected, names)
        if belief.context is not None and sources == belief.node_sources:
            return belief.context, belief.node
        context = node_context(snapshot.node, self._options, belief.context, protected)
        node, problems = node_state(snapshot.node, service_cidrs, self._options, context, belief.node, in_use=in_use)
        node = replace(node, names=names)
        belief.node_sources, belief.context, belief.node, belief.node_problems = sources, context, node, problems
        return context, node

    def _choose_cluster_ips(
        self, changed: Mapping[ObjectKey, ServiceState | None], context: Context, node: NodeState, *, reread: bool
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Returns the ClusterIPs that leave the interface before the tables change, and those that are added to it after that.

        reread: read from the kernel what the interface carries.
        """
        self._cluster_ips.set_node_addresses(context.node_addresses)
        self._cluster_ips.set_service_cidrs(node.service_cidrs)
        if reread:
            self._cluster_ips.distrust()
        return self._cluster_ips.note_changes(changed)

    def _end_stale_flows(self, families: Mapping[Family, TableReport], programmed: frozenset[Family]) -> None:
        self._flows.submit(self._udp.take(programmed))
        for family in programmed:
            if (families[family].read_back and families[family].messages) or family in self._doubtful:
                self._flows.look_again(family)
        self._doubtful -= programmed

    def _plan_retry(self, finished: float, *, all_ok: bool) -> None:
        failures = max(*self._failures.values(), self._cluster_ips.failures)
        if not failures and not all_ok:
            failures = 1
        self._retry_at = finished + self._timing.backoff.seconds(failures) if failures else None

    def _other_agent_owns_tables(self) -> bool:
        """Returns whether another agent programs this node; then the addresses on the service interface belong to it."""
        if self._cluster_ips.is_in_sync:
            return False
        try:
            return all(table.has_other_owner() for table in self._tables)
        except (Retryable, Unusable):
            return False  # the pass that follows reports the error

    async def _translate(
        self, changes: ChangeSet, context: Context, *, everything: bool
    ) -> Mapping[ObjectKey, ServiceState | None]:
        dirty = None if everything else changes.services
        if (
            dirty is not None
            and translation_size(self._snapshot, {*dirty, *self._translator.outdated_by(context)}) <= THREAD_ABOVE
        ):
            return self._translator.update(self._snapshot, dirty, context)
        return await asyncio.to_thread(self._translator.update, self._snapshot, dirty, context)

    async def _sync_table(
        self, table: Table, changed: Mapping[ObjectKey, ServiceState | None], node: NodeState, *, compare: bool
    ) -> TableReport:
        """Programs one family. A failure does not concern the other one: the changes stay in its driver and the next pass retries."""
        try:
            report = await table.sync(changed, node, compare=compare)
            self._heartbeat.beat()
        except Interrupted as error:
            self._doubtful.add(table.family)
            logger.warning("programming %s was interrupted by others, trying again: %s", table.family.value, error)
            return TableReport(error=str(error), problems=table.problems)
        except (Retryable, Unusable) as error:
            self._doubtful.add(table.family)
            self._failures[table.family] += 1
            self._last_errors[table.family] = error
            logger.warning(
                "programming %s failed (%d in a row): %s; the programmed rules stay in force, and the agent tries again",
                table.family.value,
                self._failures[table.family],
                error,
            )
            return TableReport(error=str(error), problems=table.problems)
        self._failures[table.family] = 0
        self._last_errors.pop(table.family, None)
        return report

    def _note_services(self, changed: Mapping[ObjectKey, ServiceState | None]) -> None:
        for key, state in changed.items():
            self._belief.service_problems.pop(key, None)
            self._belief.node_port_services.discard(key)
            if state is not None and state.problems:
                self._belief.service_problems[key] = state.problems
            if state is not None and has_node_port(state):
                self._belief.node_port_services.add(key)

    def _problems(self, families: Iterable[TableReport]) -> tuple[Problem, ...]:
        belief = self._belief
        return (
            *relevant_problems(belief.node_problems, node_ports=bool(belief.node_port_services)),
            *self._cluster_ips.problems,
            *(problem for table in families for problem in table.problems),
            *(problem for problems in belief.service_problems.values() for problem in problems),
        )

    def _give_up_if_hopeless(self, enough: Callable[[Iterable[bool]], bool] = all) -> None:
        """Raises an error only if no family works; one that works is reason enough to go on, and the other is retried.

        Raises the error that a person must act on, or SyncFailedError after many attempts, once `enough` families have it.
        """
        errors = [self._last_errors.get(table.family) for table in self._tables]
        if enough(isinstance(error, Unusable) for error in errors):
            raise next(error for error in errors if isinstance(error, Unusable))
        if enough(failures >= FATAL_FAILURES for failures in self._failures.values()):
            last = next(error for error in errors if error is not None)
            raise SyncFailedError(f"programming failed {FATAL_FAILURES} times in a row, last: {last}")
