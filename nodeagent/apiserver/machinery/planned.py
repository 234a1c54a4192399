"""Commits an object together with the changes that its kind has planned."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from nodeagent.apiserver.addresses.allocation import ADDRESSES
from nodeagent.apiserver.machinery.joint_writes import JointWrites, WritePlan
from nodeagent.apiserver.storage import records
from nodeagent.apiserver.storage.store import Store

_TURN_SECONDS: Final = 10.0
"""How long a write waits for earlier ones while the storage does not respond."""
_ATTEMPTS: Final = 32
_HEAD_START_SECONDS: Final = 0.1
"""How much earlier than its Service an address is written: a kube-apiserver needs some milliseconds to see it."""


class PlannedWrites:
    """Raises Precondition for a lost race, StorageFull, StorageFailed. is_beside_others: as for `Commits`."""

    def __init__(self, store: Store, is_beside_others: Callable[[], bool]) -> None:
        self._store = store
        self._is_beside_others = is_beside_others

    async def write(self, joint: JointWrites, plan: WritePlan, change: records.Change) -> records.Record:
        """Commits the object's new state and its plan in one transaction; beside a kube-apiserver, new addresses before it.

        A kube-apiserver receives Services and addresses by two watches. If both come in one transaction, it often sees the
        Service first, reports that its address is not allocated, and tries to allocate it. It writes addresses first itself,
        too.
        """
        early = [one for one in plan.changes if one.collection == ADDRESSES and one.expected == 0]
        if not early or not self._is_beside_others():
            return (await self._commit(joint, plan, [*plan.changes, change]))[-1]
        made = await self._store.commit(early)
        try:
            await asyncio.sleep(_HEAD_START_SECONDS)
            later = [one for one in plan.changes if one not in early]
            return (await self._commit(joint, plan, [*later, change]))[-1]
        except records.StorageUncertain:
            raise
        except (records.Precondition, records.StorageFull, records.StorageFailed):
            with suppress(records.Precondition, records.StorageFull, records.StorageFailed):
                await self._store.commit(
                    [records.Change(ADDRESSES, one.path, one.revision, None, one.body) for one in made]
                )
            raise

    async def remove(self, joint: JointWrites, plan: WritePlan, change: records.Change) -> records.Record:
        """Commits the deletion and its plan. A full etcd accepts only deletions: then the other changes are left to repair."""
        changes = [change, *plan.changes]
        try:
            return (await self._commit(joint, plan, changes))[0]
        except records.StorageFull:
            if joint.turn(plan) is None:
                raise
        return (await self._store.commit([one for one in changes if one.body is None]))[0]

    async def _commit(
        self, joint: JointWrites, plan: WritePlan, changes: Sequence[records.Change]
    ) -> list[records.Record]:
        turn = joint.turn(plan)
        if turn is None:
            return await self._store.commit(changes)
        async with _locked(turn):
            for _ in range(_ATTEMPTS):
                late = joint.late_changes(plan)
                try:
                    return (await self._store.commit([*changes, *late]))[: len(changes)]
                except records.Precondition as race:
                    # Another server changed the shared record; the plan may still fit.
                    if not any(
                        one.path == race.change.path for one in late if one.collection == race.change.collection
                    ):
                        raise
                    lost = race
        raise lost


@asynccontextmanager
async def _locked(turn: asyncio.Lock) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_TURN_SECONDS):
            await turn.acquire()
    except TimeoutError:
        raise records.StorageUnreachable("earlier writes are still waiting") from None
    try:
        yield
    finally:
        turn.release()
