"""The storage in etcd: one watch delivers state and history; writes are transactions that end when the watch has delivered
them."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from nodeagent.apiserver.storage import records
from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.availability import RESTORED, AvailabilityReporter
from nodeagent.apiserver.storage.etcd.cluster_client import CALL_SECONDS, Client, EtcdFailed
from nodeagent.apiserver.storage.etcd.compaction import Compaction
from nodeagent.apiserver.storage.etcd.etcd_messages import Header, WatchEvent
from nodeagent.apiserver.storage.etcd.etcd_survey import check_cluster, check_rights
from nodeagent.apiserver.storage.etcd.kept_leases import KeptLeases
from nodeagent.apiserver.storage.etcd.last_seen import LastSeen, LastSeenFile
from nodeagent.apiserver.storage.etcd.layout import Layout, Unreadable
from nodeagent.apiserver.storage.etcd.loading import load
from nodeagent.apiserver.storage.etcd.outcomes import Outcome
from nodeagent.apiserver.storage.etcd.pending_deliveries import PendingDeliveries
from nodeagent.apiserver.storage.etcd.rounds import CallCoalescer
from nodeagent.apiserver.storage.etcd.transactions import MOST_CHANGES, Transaction, deletion_row, row_of, transaction
from nodeagent.apiserver.storage.etcd.watching import HistoryCompacted, Watching
from nodeagent.apiserver.storage.port import Deliver, Loaded, Settled, Write
from nodeagent.apiserver.storage.sqlite_file import write_store

logger = logging.getLogger(__name__)
_WRITE_SECONDS: Final = 10.0
"""A write that cannot be settled within this time fails."""
_PAUSE_SECONDS: Final = 0.05
_ASK_AGAIN_SECONDS: Final = 0.05
_MOST_AT_A_TIME: Final = 128
_ANSWERED_SECONDS: Final = 5.0

_Result = TypeVar("_Result")


class EtcdStorage:
    """A Storage below one prefix of a cluster. `clock`: seconds since 1970, only for the age of events. `memory` keeps the
    latest revision between runs."""

    def __init__(
        self, client: Client, layout: Layout, *, clock: Callable[[], float], memory: LastSeenFile | None = None
    ) -> None:
        self._memory = memory
        self._client = client
        self._layout = layout
        self._clock = clock
        self._deliver: Deliver = _to_nobody
        self._known: dict[tuple[str, str], records.Revision] = {}
        self._counter = 0
        self._watching: Watching | None = None
        self._following: asyncio.Task[None] | None = None
        self._latest_calls = CallCoalescer(self._read_latest)
        self._slots = asyncio.Semaphore(_MOST_AT_A_TIME)
        self._writes: set[asyncio.Task[None]] = set()
        self._under_way: dict[bytes, list[Transaction]] = {}
        self._deliveries = PendingDeliveries()
        self._leases = KeptLeases(client)
        self._compaction = Compaction(client)
        self._cluster = self._highest = 0
        self._ended: records.HistoryLost | None = None
        self._availability = AvailabilityReporter(client)
        self.unreadable: dict[bytes, str] = {}
        """Keys whose values are no objects known to this server, and why."""
        self.short = False
        """Whether etcd's space quota is exhausted."""

    @property
    def shared(self) -> bool:
        """True: other servers may write to it."""
        return True

    @property
    def remote(self) -> bool:
        """True: it is remote."""
        return True

    @property
    def reachable(self) -> bool:
        """Whether a member with a leader answered within the last seconds, and no permission is missing."""
        return time.monotonic() - self._client.answered_at < _ANSWERED_SECONDS and not self._client.denied

    @property
    def failure_reason(self) -> str:
        """Why it is not reachable; empty if that is not known."""
        return self._client.denied or self._availability.reason

    async def open(self, deliver: Deliver) -> Loaded:
        """Checks the cluster, reads all objects and starts the watch. Raises StorageFailed."""
        try:
            return await self._load(deliver)
        except BaseException:
            await self.close()
            raise

    async def _load(self, deliver: Deliver) -> Loaded:
        seen = self._memory.read() if self._memory is not None else None
        await self._as_storage_error(check_cluster(self._client, self._layout, seen))
        found = await self._as_storage_error(load(self._client, self._layout, int(self._clock())))
        if self._memory is not None:
            self._memory.check(seen, found.cluster, found.latest)
        self._cluster, self._highest = found.cluster, found.latest
        self._compaction.begin(found.compactions)
        self.unreadable = found.unreadable
        self._known = {(row.collection, row.path): row for row in found.rows}
        later: list[records.Revision] = []
        self._deliver = lambda rows, _: later.extend(rows)
        bounds = self._layout.start, self._layout.end
        self._watching = Watching(self._client, *bounds, on_events=self._apply, on_position=self._deliveries.reach)
        self._following = asyncio.create_task(self._follow(found.base), name="etcd-watch")
        await self.latest()
        self._set_short(short=await self._as_storage_error(self._client.has_alarm()))
        self._deliver = deliver
        rows = [*found.rows, *later]
        self._counter = max(found.base, rows[-1].number if rows else 0)
        await self._remember()
        return Loaded(rows, found.base, self._counter)

    async def close(self) -> None:
        """Finishes all writes, saves the latest revision and closes the connections."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._latest_calls.close()
        with contextlib.suppress(records.StorageFailed):
            await self._remember()
        self._deliver = _to_nobody
        self._client.close()

    def write(self, writes: Sequence[Write]) -> None:
        """Begins each write in a task of its own, so that none waits for another. Results are delivered by token."""
        for write in writes:
            task = asyncio.create_task(self._write(write), name="etcd-write")
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def latest(self) -> int:
        """Returns the latest revision, after all changes up to it were delivered. Concurrent calls share one read of etcd."""
        header = await self._latest_calls.ask()
        await self._wait_until_delivered(header.revision, CALL_SECONDS * 2, asks=True)
        return max(self._counter, header.revision)

    async def catch_up(self, now: int) -> int:  # noqa: ARG002 - etcd itself deletes expired objects
        """Waits for the writes that have begun; then checks missing permissions, and whether a full etcd has space again."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        async with self._availability.report_failures():
            if self._client.denied:
                await self._as_storage_error(check_rights(self._client, self._layout))
            if self.short:
                self._set_short(short=await self._as_storage_error(self._client.has_alarm()))
            await self.latest()
            await self._remember()
        return self._counter

    async def compact(self, floor: int) -> None:
        """Compacts the history below `floor`, if this server wins the turn."""
        await self._as_storage_error(self._compaction.compact(floor, counted=not self.short))

    async def snapshot(self, path: str) -> None:
        """Writes the objects at one revision to a new SQLite store."""
        await self.latest()
        rows, counter = sorted(self._known.values(), key=lambda row: row.number), self._counter
        await asyncio.to_thread(write_store, path, rows, counter)

    async def _write(self, write: Write) -> None:
        outcome: Settled
        try:
            outcome = await self._with_slot(write)
        except EtcdFailed as failed:
            outcome = self._failure(failed)
        except records.StorageFailed as failed:
            outcome = failed
        except Exception as error:
            logger.exception("write failed unexpectedly changes=%d", len(write.changes))
            outcome = records.StorageFailed(f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            # Its caller must not wait forever.
            self._deliver((), [(write.token, records.StorageUncertain("the server stopped before the answer"))])
            raise
        self._deliver((), [(write.token, outcome)])

    async def _with_slot(self, write: Write) -> Settled:
        """Waits for a slot, then writes. The time limit includes the wait: while etcd does not answer, writes queue up."""
        ends = time.monotonic() + _WRITE_SECONDS
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise records.StorageUnreachable("etcd does not answer: earlier writes are still waiting") from None
        try:
            return await self._settle(write, ends)
        finally:
            self._slots.release()

    async def _settle(self, write: Write, ends: float) -> Settled:
        if len(write.changes) > MOST_CHANGES:
            raise records.ObjectTooLarge(f"{len(write.changes)} changes in one transaction; etcd takes {MOST_CHANGES}")
        wanted = transaction(self._layout, write.changes)
        seconds = next((change.seconds for change in write.changes if change.seconds is not None), None)
        lease = 0
        if seconds is not None:
            same = await self._renew_only(write.changes, wanted)
            if same is not None:
                return [same]
            lease = await self._leases.grant(seconds)
        for key in wanted.keys:
            self._under_way.setdefault(key, []).append(wanted)
        try:
            settled = await self._transact(wanted, lease, ends)
        finally:
            for key in wanted.keys:
                self._under_way[key].remove(wanted)
                if not self._under_way[key]:
                    del self._under_way[key]
        if isinstance(settled, records.Precondition):
            return settled
        if seconds is not None and len(wanted.keys) == 1 and wanted.values[0] is not None:
            self._leases.keep(wanted.keys[0], lease, settled, wanted.values[0], seconds)
        return wanted.rows(self._layout, settled, write.at)

    async def _renew_only(self, changes: Sequence[records.Change], wanted: Transaction) -> records.Revision | None:
        """Returns the object if the change only renews it, after its lease was renewed and if it is still the latest. Else
        None."""
        if len(changes) != 1:
            return None
        (change,) = changes
        known = self._known.get((change.collection, change.path))
        same = await self._leases.renew(wanted.keys[0], wanted.values[0], change, known)
        if same is not None:
            # A lease remains after another server replaced or deleted its object.
            await self.latest()
        return same if same is self._known.get((change.collection, change.path)) else None

    async def _transact(self, wanted: Transaction, lease: int, ends: float) -> int | records.Precondition:
        """Returns the revision of the transaction, or why it was refused. Raises StorageUncertain if neither is proven. A
        request without an answer may still be pending in some member, however long ago it was sent."""
        request = wanted.request(lease)
        lost_answer = ""
        while True:
            highest = self._highest
            try:
                reply = await self._client.txn(request, *wanted.purpose())
            except EtcdFailed as failed:
                if failed.outcome is Outcome.UNKNOWN:
                    lost_answer = str(failed)
                may_repeat = failed.outcome in (Outcome.NOT_DONE, Outcome.UNKNOWN) and time.monotonic() < ends
                if lost_answer and not (may_repeat and wanted.is_carried_out_once):
                    raise _unknown(lost_answer) from None
                if not may_repeat:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._check(reply.header, highest)
            # The caller computes a lost race again from the winner's result, so that must be delivered first.
            await self._wait_until_delivered(
                reply.header.revision, max(ends - time.monotonic(), CALL_SECONDS), asks=not reply.succeeded
            )
            if reply.succeeded:
                return reply.header.revision
            if not lost_answer:
                return wanted.refusal(reply)
            refusal = wanted.proof_of_refusal()
            if refusal is None:
                raise _unknown(lost_answer)
            return refusal

    async def _follow(self, base: int) -> None:
        assert self._watching is not None
        try:
            await self._watching.run(base)
        except HistoryCompacted as gone:
            self._fail(
                records.HistoryLost(f"etcd has compacted the history from revision {self._watching.position}: {gone}")
            )
        except Exception as error:
            logger.exception("the watch of etcd broke")
            self._fail(records.HistoryLost(f"the watch of etcd broke: {error}"))

    def _fail(self, error: records.HistoryLost) -> None:
        self._ended = error
        self._deliveries.fail(error)

    async def _read_latest(self) -> Header:
        highest = self._highest
        reply = await self._as_storage_error(
            self._client.read(etcd_messages.range_request(self._layout.start, limit=1, keys_only=True), "get")
        )
        self._check(reply.header, highest)
        return reply.header

    def _check(self, header: Header, highest: int) -> None:
        """Raises HistoryLost if the etcd was restored: revisions then belong to other changes. `highest` was known before the
        call."""
        if header.cluster != self._cluster or header.revision < highest:
            self._fail(records.HistoryLost(RESTORED))
        if self._ended is not None:
            raise self._ended
        self._highest = max(self._highest, header.revision)

    async def _wait_until_delivered(self, revision: int, seconds: float, *, asks: bool) -> None:
        """Waits until all changes up to a revision were delivered. Raises StorageUncertain, HistoryLost."""
        assert self._watching is not None
        ends = time.monotonic() + seconds
        member, until = self._client.member, time.monotonic() + CALL_SECONDS
        while self._watching.position < revision:
            if self._ended is not None:
                raise self._ended
            if asks:
                # A member that is still sending earlier changes does not answer.
                self._watching.request_progress()
            try:
                async with asyncio.timeout(_ASK_AGAIN_SECONDS if asks else CALL_SECONDS):
                    await self._deliveries.wait_for(revision)
            except TimeoutError:
                now = time.monotonic()
                if now >= until:
                    # The member of the watch is behind, or disconnected.
                    self._client.switch_from(member)
                    member, until = self._client.member, now + CALL_SECONDS
                if now >= ends:
                    raise records.StorageUncertain(f"the changes up to revision {revision} have not arrived") from None

    def _apply(self, events: Sequence[WatchEvent]) -> None:
        rows = list(self._rows(events))
        if rows:
            self._counter = rows[-1].number
            self._deliver(rows, ())

    def _rows(self, events: Iterable[WatchEvent]) -> Iterable[records.Revision]:
        now = int(self._clock())
        for event in events:
            key = event.kv.key
            for wanted in self._under_way.get(key, ()):
                wanted.record(event)
            found = self._layout.locate(key)
            if found is None:
                continue
            try:
                row = row_of(self._layout, self._known, found, event, now)
                self.unreadable.pop(key, None)
            except Unreadable as error:
                self._report_unreadable(key, str(error))
                before = self._known.get(found)
                # An unreadable object does not exist, for this server as for one that starts now.
                row = deletion_row(before, event.kv.mod_revision, now) if before is not None else None
            if row is None:
                continue
            if row.deleted:
                self._known.pop(found, None)
                self._leases.forget(key)
            else:
                self._known[found] = row
            yield row

    def _set_short(self, *, short: bool) -> None:
        if short and not self.short:
            logger.warning(
                "etcd has no space left: only deletions pass until it is defragmented and its alarm disarmed"
            )
        elif self.short and not short:
            logger.info("etcd has space again")
        self.short = short

    async def _remember(self) -> None:
        if self._memory is not None and self._highest:
            await asyncio.to_thread(self._memory.write, LastSeen(self._cluster, max(self._highest, self._counter)))

    def _report_unreadable(self, key: bytes, why: str) -> None:
        if self.unreadable.get(key) != why:
            self.unreadable[key] = why
            logger.warning("ignored, cannot be read key=%s reason=%s", key.decode(errors="replace"), why)

    async def _as_storage_error(self, call: Awaitable[_Result]) -> _Result:
        try:
            return await call
        except EtcdFailed as failed:
            raise self._failure(failed) from None

    def _failure(self, failed: EtcdFailed) -> Exception:
        if failed.outcome is Outcome.ANOTHER:
            self._fail(records.HistoryLost(RESTORED))
        if failed.outcome is Outcome.FULL:
            self._set_short(short=True)
        return self._ended or failed.as_storage()


def _unknown(why: str) -> records.StorageUncertain:
    return records.StorageUncertain(f"it is not known whether it was written: {why}")


def _to_nobody(_: Sequence[records.Revision], __: Sequence[tuple[object, Settled]]) -> None:
    """Is used before the storage is open, and after it was closed."""
