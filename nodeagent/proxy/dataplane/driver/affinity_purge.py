"""Deletes the learned affinity of endpoints that left, concurrently with the passes, in batches until none is left.

A client stays bound to a deleted endpoint until its entry is deleted, and the kernel refuses a whole batch if one of its
entries has just expired. So batches are small, and expired entries are taken out of a refused batch.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import islice
from time import monotonic
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.reports import PurgeReport
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, repeated
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected, DataplaneError, StaleGeneration
from nodeagent.proxy.dataplane.image.affinity import ValidEndpoints, is_stale, stale_entries
from nodeagent.proxy.dataplane.image.image import Elements
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.proxy.dataplane.worker_thread import in_thread

logger = logging.getLogger(__name__)

FIRST_ENOUGH = 4000
"""The first look stops at this many stale entries, the second at twice as many, and so on: the time of a dump grows with
the square of its elements, and entries that are found must not wait for the rest."""
PAUSE_SECONDS = 0.05
BATCH_ENTRIES = 500
"""Per transaction: a commit keeps other programs, and a pass of ours, from the ruleset for a few milliseconds."""
RETRY = Backoff(first_seconds=0.1, longest_seconds=10.0)


class PurgeListener(Protocol):
    """Is notified when all stale entries have been deleted; must not raise or block."""

    def affinity_purged(self, report: PurgeReport) -> None: ...


class AffinityPurge:
    """Purges the learned affinity of one family.

    writer: the socket that owns the table. Entries are read over another socket, so that a pass need not wait for that.
    known: returns the generation up to which the ruleset is known, or None if nobody else can change the table.
    """

    def __init__(
        self,
        family: Family,
        specs: Mapping[str, SetSpec],
        writer: Ruleset,
        listener: PurgeListener,
        known: Callable[[], int | None],
    ) -> None:
        self._family = family
        self._specs = specs
        self._writer = writer
        self._listener = listener
        self._known = known
        self._valid: ValidEndpoints = {}
        self._wanted = asyncio.Event()

    def programmed(self, valid: ValidEndpoints, *, lost: bool) -> None:
        """Sets the endpoints that clients may be bound to from now on; lost: some left, so that entries may be stale."""
        self._valid = valid
        if lost:
            self._wanted.set()

    async def run(self) -> None:
        """Purges whenever endpoints left, until cancelled; retries what fails."""
        failures = 0
        while True:
            await self._wanted.wait()
            if await self.purge():
                failures = 0
            else:
                failures += 1
                await asyncio.sleep(RETRY.seconds(failures))

    async def purge(self) -> bool:
        """Purges once; returns whether no stale entry is left. After a failure, which is logged, the purge stays due."""
        started = monotonic()
        forgotten = looks = 0
        try:
            while self._wanted.is_set():
                self._wanted.clear()
                found, met_all = await self._purge_once(FIRST_ENOUGH << looks)
                looks += 1
                forgotten += found
                if found or not met_all:
                    self._wanted.set()
                if not found and not met_all:
                    await asyncio.sleep(PAUSE_SECONDS)
        except (DataplaneError, OSError) as error:
            logger.warning(
                "clients of endpoints that left are not forgotten yet (%s), trying again: %s", self._family.value, error
            )
            self._wanted.set()
            return False
        except BaseException:
            self._wanted.set()
            raise
        if forgotten:
            self._listener.affinity_purged(PurgeReport(self._family, forgotten, looks, monotonic() - started))
        return True

    async def _purge_once(self, enough: int) -> tuple[int, bool]:
        """Finds stale entries in one look and deletes them; returns (how many, whether the look saw all entries)."""
        with closing(Ruleset()) as reader:
            stale, met_all = await in_thread(lambda: repeated(lambda: self._look(reader, enough)))
        remaining = iter(stale.items())
        while batch := list(islice(remaining, BATCH_ENTRIES)):
            await in_thread(lambda batch=batch: self._delete(batch))  # type: ignore[misc]
        return len(stale), met_all

    def _look(self, reader: Ruleset, enough: int) -> tuple[Elements, bool]:
        stale: Elements = {}
        met: set[bytes] = set()
        count = 0
        try:
            for learned in KernelTable(reader, self._family, self._specs).learned_endpoints():
                stale |= stale_entries(learned, self._valid)
                if len(stale) >= enough:
                    reader.close()  # otherwise the useless rest of the dump would still be read
                    return stale, False
                met.update(learned)
                count += len(learned)
        except FileNotFoundError:
            return {}, True
        # Where some entries came twice, others are missing.
        return stale, count == len(met)

    def _delete(self, entries: list[tuple[bytes, bytes]]) -> None:
        """Deletes those of the entries that exist and are still stale: the endpoint may have come back meanwhile."""
        keys = [key for key, endpoint in entries if is_stale(key, endpoint, self._valid)]
        while keys:
            transaction = Transaction(self._family, self._specs)
            transaction.forget_affinity(keys)
            try:
                self._commit(transaction)
                break
            except CommitRejected as error:
                gone = {item.key for item in error.rejections if item.errno == errno.ENOENT}
                if not gone:
                    raise
                keys = [key for key in keys if key not in gone]

    def _commit(self, transaction: Transaction) -> None:
        try:
            self._writer.commit(transaction, self._known())
        except StaleGeneration:
            # The next read-back finds the table as believed: no belief includes learned entries.
            self._writer.commit(transaction)
