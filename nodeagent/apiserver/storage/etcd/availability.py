"""Why etcd cannot be used, in one line for the operator; logged when that begins, changes and ends."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from nodeagent.apiserver.storage.etcd.cluster_client import Client
from nodeagent.apiserver.storage.records import HistoryLost, StorageFailed

logger = logging.getLogger(__name__)
RESTORED: Final = "etcd was restored from a snapshot, or is another one: everything has to be read again"


class AvailabilityReporter:
    """Logs when etcd becomes unusable and usable again. `reason` is empty while it can be used."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.reason = ""

    async def _report(self, error: str) -> None:
        text = self._client.denied
        if not text:
            members = self._client.members
            reasons = await asyncio.gather(*map(self._client.diagnose, members))
            reasons_of_members = [
                f"{member.endpoint}: {why}" for member, why in zip(members, reasons, strict=True) if why
            ]
            text = "; ".join(reasons_of_members) if len(reasons_of_members) == len(members) else error
        if text != self.reason:
            logger.warning("etcd cannot be used: %s", text)
        self.reason = text

    @asynccontextmanager
    async def report_failures(self) -> AsyncIterator[None]:
        """Reports failures of the calls in the block, and raises them again. Raises HistoryLost if only another cluster
        answers."""
        try:
            yield
        except HistoryLost:
            raise
        except StorageFailed as failed:
            if await self._client.is_another():
                raise HistoryLost(RESTORED) from None
            await self._report(str(failed))
            raise
        if self.reason:
            logger.info("etcd can be used again")
        self.reason = ""
