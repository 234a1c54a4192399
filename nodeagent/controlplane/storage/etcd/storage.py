"""The storage in etcd: state and history come by one watch, and writes are transactions that end when the watch shows them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Final, TypeVar

from nodeagent.controlplane.storage.etcd import messages
from nodeagent.controlplane.storage.etcd.client import CALL_SECONDS, Client, EtcdFailed
from nodeagent.controlplane.storage.etcd.layout import Layout, Unreadable
from nodeagent.controlplane.storage.etcd.loading import COMPACT_KEY, examine, load
from nodeagent.controlplane.storage.etcd.messages import Header, WatchEvent
from nodeagent.controlplane.storage.etcd.outcomes import Outcome
from nodeagent.controlplane.storage.etcd.rounds import Rounds
from nodeagent.controlplane.storage.etcd.transactions import MOST_CHANGES, Transaction, gone, rows_of, transaction
from nodeagent.controlplane.storage.etcd.watching import HistoryGone, Watching
from nodeagent.controlplane.storage.port import Deliver, Loaded, Settled, Write
from nodeagent.controlplane.storage.records import (
    LeftBehind,
    ObjectTooLarge,
    Revision,
    StorageFailed,
    StorageFull,
    StorageUncertain,
    StorageUnreachable,
)
from nodeagent.controlplane.storage.sqlite_file import write_store

logger = logging.getLogger(__name__)
_WRITE_SECONDS: Final = 10.0
"""After which a write that cannot be settled is given up."""
_PAUSE_SECONDS: Final = 0.05
_ASK_AGAIN_SECONDS: Final = 0.05
_MOST_AT_A_TIME: Final = 128
_SHORTEST_LEASE_SECONDS: Final = 2
_ANSWERED_SECONDS: Final = 5.0
_ALL_KEYS: Final = (b"\0", b"\0")

_Result = TypeVar("_Result")


class EtcdStorage:
    """A Storage below one prefix of a cluster. `clock` gives seconds since 1970, for the age of events only."""

    def __init__(self, client: Client, layout: Layout, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._layout = layout
        self._clock = clock
        self._deliver: Deliver = _to_nobody
        self._known: dict[tuple[str, str], Revision] = {}
        self._counter = 0
        self._watching: Watching | None = None
        self._following: asyncio.Task[None] | None = None
        self._rounds = Rounds(self._read_latest)
        self._slots = asyncio.Semaphore(_MOST_AT_A_TIME)
        self._writes: set[asyncio.Task[None]] = set()
        self._under_way: dict[bytes, list[Transaction]] = {}
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._leases: dict[bytes, tuple[int, int, bytes, int]] = {}
        self._compactions = 0
        self._cluster = 0
        self._highest = 0
        self._ended: LeftBehind | None = None
        self.unreadable: dict[bytes, str] = {}
        """Keys whose values are no objects this server knows, and why."""
        self.short = False
        """etcd has run out of the space it may use."""

    @property
    def shared(self) -> bool:
        """It always is."""
        return True

    @property
    def remote(self) -> bool:
        """It always is."""
        return True

    @property
    def reachable(self) -> bool:
        """A member that has a leader answered lately."""
        return time.monotonic() - self._client.answered_at < _ANSWERED_SECONDS

    async def open(self, deliver: Deliver) -> Loaded:
        """Raises StorageFailed."""
        try:
            return await self._load(deliver)
        except BaseException:
            await self.close()
            raise

    async def _load(self, deliver: Deliver) -> Loaded:
        believes = await examine(self._client)
        found = await self._reading(load(self._client, self._layout, int(self._clock())))
        self._cluster, self._highest, self._compactions = found.cluster, found.latest, found.compactions
        self.unreadable = found.unreadable
        self._known = {(row.collection, row.path): row for row in found.rows}
        later: list[Revision] = []
        self._deliver = lambda rows, _: later.extend(rows)
        start, end = (self._layout.start, self._layout.end) if believes else _ALL_KEYS
        self._watching = Watching(
            self._client, start, end, on_events=self._take, on_position=self._reached, believes=believes
        )
        self._following = asyncio.create_task(self._follow(found.base), name="etcd-watch")
        await self.latest()
        self.short = await self._reading(self._client.has_alarm())
        self._deliver = deliver
        rows = [*found.rows, *later]
        self._counter = max(found.base, rows[-1].number if rows else 0)
        return Loaded(rows, found.base, self._counter)

    async def close(self) -> None:
        """Finishes what was asked for."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._rounds.close()
        self._deliver = _to_nobody
        self._client.close()

    def write(self, writes: Sequence[Write]) -> None:
        """Each by itself, and none waits for another."""
        for write in writes:
            task = asyncio.create_task(self._carry_out(write), name="etcd-write")
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def latest(self) -> int:
        """One read serves all who wait for one."""
        header = await self._rounds.ask()
        await self._reach(header.revision, CALL_SECONDS * 2, asks=True)
        return max(self._counter, header.revision)

    async def catch_up(self, now: int) -> int:  # noqa: ARG002 - when time is up is etcd's business
        """What others wrote comes by itself; this waits for what was asked for, and looks whether there is room again."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        if self.short:
            self.short = await self._reading(self._client.has_alarm())
        await self.latest()
        return self._counter

    async def compact(self, floor: int) -> None:
        """One server at a time: whoever counts up the key that kube-apiserver has for it. Without room that cannot be counted."""
        if not self.short:
            mine = messages.compare(COMPACT_KEY, messages.VERSION, self._compactions)
            put = messages.as_put(messages.put_request(COMPACT_KEY, b"%d" % floor))
            other = messages.as_range(messages.range_request(COMPACT_KEY))
            try:
                reply = await self._client.txn(messages.txn_request([mine], [put], [other]))
            except EtcdFailed as failed:
                raise self._failure(failed) from None
            if not reply.succeeded:
                kvs = reply.ranges[0].kvs
                self._compactions = kvs[0].version if kvs else 0
                return
            self._compactions += 1
        try:
            await self._client.compact(floor)
        except EtcdFailed as failed:
            if failed.outcome is not Outcome.COMPACTED:
                raise self._failure(failed) from None

    async def snapshot(self, path: str) -> None:
        """Writes the objects, as of one revision, to a SQLite store."""
        await self.latest()
        rows, counter = sorted(self._known.values(), key=lambda row: row.number), self._counter
        await asyncio.to_thread(write_store, path, rows, counter)

    async def _carry_out(self, write: Write) -> None:
        outcome: Settled
        try:
            async with self._slots:
                outcome = await self._settle(write)
        except EtcdFailed as failed:
            outcome = self._failure(failed)
        except StorageFailed as failed:
            outcome = failed
        except Exception as error:
            logger.exception("write broke changes=%d", len(write.changes))
            outcome = StorageFailed(f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            # Whoever waits for it must not wait for ever.
            self._deliver((), [(write.token, StorageUncertain("it was not waited for"))])
            raise
        self._deliver((), [(write.token, outcome)])

    async def _settle(self, write: Write) -> Settled:
        if len(write.changes) > MOST_CHANGES:
            raise ObjectTooLarge(f"{len(write.changes)} changes in one transaction; etcd takes {MOST_CHANGES}")
        wanted = transaction(self._layout, write.changes)
        seconds = next((change.seconds for change in write.changes if change.seconds is not None), None)
        lease = 0
        if seconds is not None:
            same = await self._stays(wanted)
            if same is not None:
                return [same]
            lease = await self._client.grant_lease(max(ceil(seconds), _SHORTEST_LEASE_SECONDS))
        for key in wanted.keys:
            self._under_way.setdefault(key, []).append(wanted)
        try:
            settled = await self._transact(wanted, lease)
        finally:
            for key in wanted.keys:
                self._under_way[key].remove(wanted)
                if not self._under_way[key]:
                    del self._under_way[key]
        if isinstance(settled, Exception):
            return settled
        if seconds is not None and len(wanted.keys) == 1 and wanted.values[0] is not None:
            self._leases[wanted.keys[0]] = (lease, settled, wanted.values[0], ceil(seconds))
        return wanted.rows(self._layout, settled, write.at)

    async def _stays(self, wanted: Transaction) -> Revision | None:
        """The record of an object that is only to stay for longer, once its lease was renewed."""
        if len(wanted.changes) != 1:
            return None
        (change,) = wanted.changes
        kept = self._leases.get(wanted.keys[0])
        known = self._known.get((change.collection, change.path))
        if kept is None or known is None or change.seconds is None:
            return None
        lease, revision, value, seconds = kept
        if (revision, value, seconds) != (known.number, wanted.values[0], ceil(change.seconds)):
            return None
        if change.expected not in (None, revision):
            return None
        return known if await self._client.renew_lease(lease) else None

    async def _transact(self, wanted: Transaction, lease: int) -> "int | Exception":
        """The revision it was carried out at, or why it was refused. What was not answered is found out."""
        ends = time.monotonic() + _WRITE_SECONDS
        request = wanted.request(lease)
        uncertain = False
        while True:
            highest = self._highest
            try:
                reply = await self._client.txn(request)
            except EtcdFailed as failed:
                if failed.outcome is Outcome.FULL:
                    self.short = True
                if failed.outcome not in (Outcome.NOT_DONE, Outcome.UNKNOWN):
                    raise
                uncertain = uncertain or failed.outcome is Outcome.UNKNOWN
                done = await self._find_out(wanted, ends, uncertain=uncertain, why=str(failed))
                if done:
                    return done
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._check(reply.header, highest)
            # Whoever lost a race computes again from what the winner wrote.
            await self._reach(
                reply.header.revision, max(ends - time.monotonic(), CALL_SECONDS), asks=not reply.succeeded
            )
            if reply.succeeded:
                return reply.header.revision
            return (wanted.done_at() if uncertain else 0) or wanted.refusal(reply)

    async def _find_out(self, wanted: Transaction, ends: float, *, uncertain: bool, why: str) -> int:
        """The revision of a transaction whose answer was lost; 0: it was not carried out so far."""
        if uncertain:
            try:
                await self.latest()
            except (StorageUnreachable, StorageUncertain):
                if time.monotonic() >= ends:
                    raise StorageUncertain(f"it is not known whether it was written: {why}") from None
                return 0
            done = wanted.done_at()
            if done:
                return done
        if time.monotonic() >= ends:
            raise (StorageUncertain if uncertain else StorageUnreachable)(f"etcd does not answer: {why}")
        return 0

    async def _follow(self, base: int) -> None:
        assert self._watching is not None
        try:
            await self._watching.run(base)
        except HistoryGone as gone_:
            self._end(LeftBehind(f"etcd has forgotten the history from revision {self._watching.position}: {gone_}"))
        except Exception as error:
            logger.exception("the watch of etcd broke")
            self._end(LeftBehind(f"the watch of etcd broke: {error}"))

    def _end(self, error: LeftBehind) -> None:
        self._ended = error
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(error)

    async def _read_latest(self) -> Header:
        highest = self._highest
        reply = await self._reading(
            self._client.read(messages.range_request(self._layout.start, limit=1, keys_only=True))
        )
        self._check(reply.header, highest)
        return reply.header

    def _check(self, header: Header, highest: int) -> None:
        """`highest` was known when the call was sent: in a cluster that was restored, revisions stand for other changes."""
        if header.cluster != self._cluster or header.revision < highest:
            self._end(LeftBehind("etcd was restored from a snapshot, or is another one: all has to be read again"))
        if self._ended is not None:
            raise self._ended
        self._highest = max(self._highest, header.revision)

    async def _reach(self, revision: int, seconds: float, *, asks: bool) -> None:
        """Waits until all changes up to a revision have been delivered. Raises StorageUncertain, LeftBehind."""
        assert self._watching is not None
        ends = time.monotonic() + seconds
        member, until = self._client.member, time.monotonic() + CALL_SECONDS
        while self._watching.position < revision:
            if self._ended is not None:
                raise self._ended
            if asks:
                # A member that is still telling of earlier changes does not answer.
                self._watching.ask()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heappush(self._waiting, (revision, next(self._numbers), future))
            try:
                async with asyncio.timeout(_ASK_AGAIN_SECONDS if asks else CALL_SECONDS):
                    await future
            except TimeoutError:
                now = time.monotonic()
                if now >= until:
                    # The member that tells of changes is behind, or cut off.
                    self._client.move_on(member)
                    member, until = self._client.member, now + CALL_SECONDS
                if now >= ends:
                    raise StorageUncertain(f"the changes up to revision {revision} have not arrived") from None

    def _reached(self, position: int) -> None:
        while self._waiting and self._waiting[0][0] <= position:
            _, _, future = heappop(self._waiting)
            if not future.done():
                future.set_result(None)

    def _take(self, events: Sequence[WatchEvent]) -> None:
        rows = list(self._rows(events))
        if rows:
            self._counter = rows[-1].number
            self._deliver(rows, ())

    def _rows(self, events: Iterable[WatchEvent]) -> Iterable[Revision]:
        now = int(self._clock())
        for event in events:
            key = event.kv.key
            for wanted in self._under_way.get(key, ()):
                wanted.seen.append(event)
            found = self._layout.locate(key)
            if found is None:
                continue
            try:
                row = rows_of(self._layout, self._known, found, event, now)
                self.unreadable.pop(key, None)
            except Unreadable as error:
                self._name(key, str(error))
                before = self._known.get(found)
                # What cannot be read is not there, for this server as for one that starts now.
                row = gone(before, event.kv.mod_revision, now) if before is not None else None
            if row is None:
                continue
            if row.deleted:
                self._known.pop(found, None)
                self._leases.pop(key, None)
            else:
                self._known[found] = row
            yield row

    def _name(self, key: bytes, why: str) -> None:
        if self.unreadable.get(key) != why:
            self.unreadable[key] = why
            logger.warning("left alone, cannot be read key=%s reason=%s", key.decode(errors="replace"), why)

    async def _reading(self, call: Awaitable[_Result]) -> _Result:
        try:
            return await call
        except EtcdFailed as failed:
            raise self._failure(failed) from None

    def _failure(self, failed: EtcdFailed) -> Exception:
        text = f"etcd: {failed}"
        match failed.outcome:
            case Outcome.FULL:
                self.short = True
                return StorageFull(text)
            case Outcome.TOO_LARGE:
                return ObjectTooLarge(text)
            case Outcome.NOT_DONE:
                return StorageUnreachable(text)
            case Outcome.UNKNOWN:
                return StorageUncertain(text)
        return StorageFailed(text)


def _to_nobody(_: Sequence[Revision], __: Sequence[tuple[object, Settled]]) -> None:
    """Before the storage is open, and after it was closed."""
