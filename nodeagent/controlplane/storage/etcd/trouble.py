"""Why etcd cannot be used at the moment, in one line for the operator; logged when that begins, changes and ends."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from nodeagent.controlplane.storage.etcd.client import Client
from nodeagent.controlplane.storage.records import LeftBehind, StorageFailed

logger = logging.getLogger(__name__)
RESTORED: Final = "etcd was restored from a snapshot, or is another one: all has to be read again"


class Trouble:
    """Of one client. `text` is empty while all is well."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.text = ""

    async def _look(self, error: str) -> None:
        text = self._client.denied
        if not text:
            members = self._client.members
            reasons = await asyncio.gather(*map(self._client.diagnose, members))
            told = [f"{member.endpoint}: {why}" for member, why in zip(members, reasons, strict=True) if why]
            text = "; ".join(told) if len(told) == len(members) else error
        if text != self.text:
            logger.warning("etcd cannot be used: %s", text)
        self.text = text

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Of what is done within: what fails there, goes on failing. Raises LeftBehind where only another cluster is there."""
        try:
            yield
        except LeftBehind:
            raise
        except StorageFailed as failed:
            if await self._client.is_another():
                raise LeftBehind(RESTORED) from None
            await self._look(str(failed))
            raise
        if self.text:
            logger.info("etcd can be used again")
        self.text = ""
