"""Elects the server that runs the controllers: the one that a Lease in kube-system names.

The rules are client-go's (tools/leaderelection): the holder renews the Lease periodically, and if that fails it stops before
another server may take it; the others wait until the Lease has been unchanged for its duration. Only the time spans of a
server's own monotonic clock count, not the time of day on any server. Each write names the revision from which it was computed,
so that only one of several concurrent writes succeeds.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from nodeagent.apiserver.machinery.loop_time import Clock
from nodeagent.apiserver.storage.records import Change, Precondition, Record, StorageFailed, StorageFull, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339

logger = logging.getLogger(__name__)
LEASES: Final = "leases"
NAMESPACE: Final = "kube-system"
NAME: Final = "nodeagent-controllers"
PATH: Final = f"{NAMESPACE}/{NAME}"


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times in seconds.

    duration: the duration of the lease, from when other servers see it written.
    renew: between two writes.
    give_up: after the last successful write, the holder stops; the rest of the lease is for work in progress.
    retry: after a failure.
    release: how long releasing the lease may take.
    """

    duration: int = 13
    renew: float = 5.0
    give_up: float = 9.0
    retry: float = 1.0
    release: float = 2.0


class ObservedLease:
    """The changes of the Lease as one server has seen them, with times of its own clock."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._revision = -1
        self._since = 0.0

    def seconds_left(self, record: Record | None, now: float) -> float:
        """Returns how many seconds the Lease must be left alone; 0 if it is free or this server's own."""
        revision = record.revision if record is not None else 0
        if revision != self._revision:
            self._revision, self._since = revision, now
        spec: Document = (record.document().get("spec") or {}) if record is not None else {}
        if spec.get("holderIdentity") in (None, "", self._identity):
            return 0.0
        return max(0.0, self._since + float(spec.get("leaseDurationSeconds") or 0) - now)


class Election:
    """One server's part in the election. `identity` is unique among live servers, and stays the same after a restart."""

    def __init__(self, store: Store, identity: str, *, uid: Callable[[], str], clock: Clock) -> None:
        self._store = store
        self._identity = identity
        self._uid = uid
        self._clock = clock
        self._times = LeaseTimes()
        self._observed = ObservedLease(identity)
        self._changed = asyncio.Event()
        self._renewed = 0.0

    async def run(self, lead: Callable[[], Coroutine[None, None, None]]) -> None:
        """Runs until cancelled. Starts `lead` whenever this server is elected and cancels it when another one is. At the end
        `lead` has finished before the Lease is released."""
        leases = self._store.collection(LEASES)
        leases.register(self._changed.set)
        try:
            while True:
                await self._acquire()
                logger.info("controllers run on this server identity=%s", self._identity)
                async with asyncio.TaskGroup() as group:
                    leading = group.create_task(lead(), name="controllers")
                    await self._keep_renewing()
                    leading.cancel()
                logger.warning("controllers no longer run on this server identity=%s", self._identity)
        finally:
            leases.unregister(self._changed.set)
            await self._release()

    async def _acquire(self) -> None:
        """Waits until this server holds the Lease."""
        while True:
            record = self._lease()
            left = self._observed.seconds_left(record, self._clock.monotonic())
            if left:
                await self._wait_for_change(record, left)
            elif await self._write(record, self._times.retry):
                return
            else:
                await self._wait_for_change(record, self._times.retry)

    async def _keep_renewing(self) -> None:
        """Renews the Lease. Returns when another server holds it, or may soon take it because renewing failed."""
        while True:
            until = self._renewed + self._times.give_up
            await self._wait_for_change(self._lease(), self._renewed + self._times.renew - self._clock.monotonic())
            while True:
                left = until - self._clock.monotonic()
                record = self._lease()
                if left <= 0 or (record is not None and self._holder(record) != self._identity):
                    return
                if await self._write(record, left):
                    break
                await asyncio.sleep(min(self._times.retry, max(0.0, until - self._clock.monotonic())))

    async def _wait_for_change(self, known: Record | None, seconds: float) -> None:
        """Waits until the Lease differs from `known`, or the time has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                while self._lease() is known:
                    self._changed.clear()
                    await self._changed.wait()

    async def _write(self, record: Record | None, seconds: float) -> bool:
        """Returns whether the Lease was written as this server's within `seconds`; `record` is its present state."""
        begun = self._clock.monotonic()
        expected = record.revision if record is not None else 0
        try:
            async with asyncio.timeout(seconds):
                await self._store.commit([Change(LEASES, PATH, expected, draft(self._own_lease(record)), frees=True)])
        except StorageFull:
            # Another server cannot take it either.
            if record is None or self._holder(record) != self._identity:
                return False
        except (Precondition, StorageFailed, TimeoutError) as error:
            logger.debug("lease not written error=%s", error)
            return False
        self._renewed = begun
        return True

    async def _release(self) -> None:
        """Releases the Lease, so that a successor need not wait."""
        record = self._lease()
        if record is None or self._holder(record) != self._identity:
            return
        document = self._own_lease(record)
        document["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        with contextlib.suppress(Precondition, StorageFull, StorageFailed, TimeoutError):
            async with asyncio.timeout(self._times.release):
                await self._store.commit([Change(LEASES, PATH, record.revision, draft(document), frees=True)])

    def _lease(self) -> Record | None:
        return self._store.get(LEASES, PATH)

    def _holder(self, record: Record) -> str:
        return str((record.document().get("spec") or {}).get("holderIdentity") or "")

    def _own_lease(self, record: Record | None) -> Document:
        """Returns the Lease with this server as its holder, renewed now."""
        now = self._clock.time()
        moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if record is None:
            meta = {"name": NAME, "namespace": NAMESPACE, "uid": self._uid(), "resourceVersion": "0"}
            document: Document = {"metadata": {**meta, "creationTimestamp": rfc3339(int(now))}}
        else:
            document = record.document()
        spec: Document = document.get("spec") or {}
        if spec.get("holderIdentity") != self._identity:
            transitions = int(spec.get("leaseTransitions") or 0) + (record is not None)
            spec = {"acquireTime": moment, "leaseTransitions": transitions}
        document["spec"] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._times.duration,
            "acquireTime": spec.get("acquireTime") or moment,
            "renewTime": moment,
            "leaseTransitions": spec.get("leaseTransitions") or 0,
        }
        return document
