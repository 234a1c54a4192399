"""Which of several servers runs the controllers: the one that a Lease in kube-system names.

The rules are client-go's (tools/leaderelection): the holder renews the lease again and again, and stops before
others may take it when that fails; the others wait until they have seen it unchanged for its duration. Only spans of a
server's own monotonic clock count; what time it is on any server does not matter. Writes name the revision they were
computed from, so that one of several that try at once succeeds.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from nodeagent.apiserver.storage.records import Change, Precondition, Record, StorageFailed, StorageFull, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.moments import rfc3339

logger = logging.getLogger(__name__)
LEASES: Final = "leases"
NAMESPACE: Final = "kube-system"
NAME: Final = "nodeagent-controllers"
PATH: Final = f"{NAMESPACE}/{NAME}"


class Clock(Protocol):
    """The clocks of a machine."""

    def time(self) -> float:
        """Seconds since 1970, for people to read."""
        ...

    def monotonic(self) -> float:
        """Seconds, for spans."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds. lasts: the lease, from when others see it written. renew: between writes. give_up: after the last write
    that succeeded the holder stops; the rest of the lease is for what it is in the middle of. retry: after a failure.
    farewell: how long giving the lease back may take."""

    lasts: int = 13
    renew: float = 5.0
    give_up: float = 9.0
    retry: float = 1.0
    farewell: float = 2.0


class Observed:
    """The lease as one server has seen it change, by its own clock."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._revision = -1
        self._since = 0.0

    def seconds_left(self, record: Record | None, now: float) -> float:
        """How long the lease must be left alone; nothing when it is free, or one's own."""
        revision = record.revision if record is not None else 0
        if revision != self._revision:
            self._revision, self._since = revision, now
        spec: Document = (record.document().get("spec") or {}) if record is not None else {}
        if spec.get("holderIdentity") in (None, "", self._identity):
            return 0.0
        return max(0.0, self._since + float(spec.get("leaseDurationSeconds") or 0) - now)


class Election:
    """One server's part. `identity` is unlike that of every other server that lives, and stays when it is started again."""

    def __init__(
        self, store: Store, identity: str, *, uid: Callable[[], str], clock: Clock, terms: Terms = Terms()
    ) -> None:
        self._store = store
        self._identity = identity
        self._uid = uid
        self._clock = clock
        self._terms = terms
        self._observed = Observed(identity)
        self._changed = asyncio.Event()
        self._renewed = 0.0

    async def run(self, lead: Callable[[], Coroutine[None, None, None]]) -> None:
        """Until cancelled. `lead` is begun whenever this server is elected and cancelled when it no longer is; in the
        end it has finished before the lease is given back."""
        leases = self._store.collection(LEASES)
        leases.register(self._changed.set)
        try:
            while True:
                await self._elected()
                logger.info("controllers run on this server identity=%s", self._identity)
                async with asyncio.TaskGroup() as group:
                    leading = group.create_task(lead(), name="controllers")
                    await self._hold()
                    leading.cancel()
                logger.warning("controllers no longer run on this server identity=%s", self._identity)
        finally:
            leases.unregister(self._changed.set)
            await self._give_back()

    async def _elected(self) -> None:
        """Until the lease is this server's."""
        while True:
            record = self._lease()
            left = self._observed.seconds_left(record, self._clock.monotonic())
            if left:
                await self._changes(record, left)
            elif await self._write(record, self._terms.retry):
                return
            else:
                await self._changes(record, self._terms.retry)

    async def _hold(self) -> None:
        """Until it is another's, or could not be written for so long that it may become another's."""
        while True:
            until = self._renewed + self._terms.give_up
            await self._changes(self._lease(), self._renewed + self._terms.renew - self._clock.monotonic())
            while True:
                left = until - self._clock.monotonic()
                record = self._lease()
                if left <= 0 or (record is not None and self._holder(record) != self._identity):
                    return
                if await self._write(record, left):
                    break
                await asyncio.sleep(min(self._terms.retry, max(0.0, until - self._clock.monotonic())))

    async def _changes(self, known: Record | None, seconds: float) -> None:
        """Until the lease is no longer what was known, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                while self._lease() is known:
                    self._changed.clear()
                    await self._changed.wait()

    async def _write(self, record: Record | None, seconds: float) -> bool:
        """Whether the lease, until then `record`, is written as this server's within so many seconds."""
        begun = self._clock.monotonic()
        expected = record.revision if record is not None else 0
        try:
            async with asyncio.timeout(seconds):
                await self._store.commit([Change(LEASES, PATH, expected, draft(self._mine(record)), frees=True)])
        except StorageFull:
            # Then nobody else can take it either.
            if record is None or self._holder(record) != self._identity:
                return False
        except (Precondition, StorageFailed, TimeoutError) as error:
            logger.debug("lease not written error=%s", error)
            return False
        self._renewed = begun
        return True

    async def _give_back(self) -> None:
        """So that a successor need not wait."""
        record = self._lease()
        if record is None or self._holder(record) != self._identity:
            return
        document = self._mine(record)
        document["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        with contextlib.suppress(Precondition, StorageFull, StorageFailed, TimeoutError):
            async with asyncio.timeout(self._terms.farewell):
                await self._store.commit([Change(LEASES, PATH, record.revision, draft(document), frees=True)])

    def _lease(self) -> Record | None:
        return self._store.get(LEASES, PATH)

    def _holder(self, record: Record) -> str:
        return str((record.document().get("spec") or {}).get("holderIdentity") or "")

    def _mine(self, record: Record | None) -> Document:
        """The lease with this server as its holder, renewed now."""
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
            "leaseDurationSeconds": self._terms.lasts,
            "acquireTime": spec.get("acquireTime") or moment,
            "renewTime": moment,
            "leaseTransitions": spec.get("leaseTransitions") or 0,
        }
        return document
