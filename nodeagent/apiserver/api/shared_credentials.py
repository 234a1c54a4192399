"""One certificate authority, one key for account tokens and one list of users for all servers on a storage.

They are kept in the storage; a user who can read it can read every Secret anyway; and come into each server's directory
when it starts. Users that are added or removed in the file of one server come and go everywhere, within seconds.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nodeagent.apiserver.api.pki import write_private
from nodeagent.apiserver.storage.records import Change, Precondition, StorageFailed, StorageFull, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document

logger = logging.getLogger(__name__)
COLLECTION: Final = "credentials"
_AUTHORITY: Final = "authority"
_FIXED: Final = ("ca.crt", "ca.key", "sa.key")
_USERS: Final = "tokens.csv"
_MADE_BY_AUTHORITY: Final = "*.names"
"""Beside a certificate, for whom it is; without it, the certificate is rebuilt."""
_LOOK_EVERY_SECONDS: Final = 2.0


class SharedCredentials:
    """Those of `directory`, kept the same as those in the store."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._users: frozenset[str] = frozenset()
        """Lines of the file of users as store and file last agreed on."""
        self._is_new = False
        """Nothing was signed by the authority in the directory before this start."""

    async def fetch(self) -> bool:
        """Puts what the store has into the directory, before anything is made there; False when it has nothing."""
        record = self._store.get(COLLECTION, _AUTHORITY)
        if record is None:
            self._is_new = not await asyncio.to_thread((self._directory / _FIXED[0]).exists)
            return False
        await asyncio.to_thread(self._write, record.document()["files"])
        return True

    async def offer(self) -> bool:
        """Puts what the directory has into the store; False when another server was faster. Raises StorageFailed."""
        files = await asyncio.to_thread(self._read)
        try:
            await self._store.commit([Change(COLLECTION, _AUTHORITY, 0, _draft(files))])
        except Precondition:
            return False
        self._users = _lines(files[_USERS])
        return True

    async def run(self) -> None:
        """Keeps the users the same, until cancelled."""
        while True:
            try:
                await self.once()
            except (Precondition, StorageFailed, StorageFull, OSError) as error:
                logger.debug("users not brought together error=%s", error)
            await asyncio.sleep(_LOOK_EVERY_SECONDS)

    async def once(self) -> None:
        """What was added or removed in the file since the last look counts; of the rest, what the store says."""
        record = self._store.get(COLLECTION, _AUTHORITY)
        if record is None:
            return
        path = self._directory / _USERS
        files = record.document()["files"]
        text_here, text_there = await asyncio.to_thread(path.read_text), files[_USERS]
        own, stored = _lines(text_here), _lines(text_there)
        wanted = (stored | (own - self._users)) - (self._users - own)
        if wanted != stored:
            changed = _draft({**files, _USERS: _arranged(wanted, text_there, text_here)})
            await self._store.commit([Change(COLLECTION, _AUTHORITY, record.revision, changed)])
        if wanted != own:
            await asyncio.to_thread(write_private, path, _arranged(wanted, text_here, text_there))
        self._users = wanted

    def _read(self) -> dict[str, str]:
        return {name: (self._directory / name).read_text() for name in (*_FIXED, _USERS)}

    def _write(self, files: Mapping[str, str]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        users = self._directory / _USERS
        authority = self._directory / _FIXED[0]
        if authority.exists() and authority.read_text() != files[_FIXED[0]]:
            if not self._is_new:
                logger.warning(
                    "the store has another certificate authority: its own counts directory=%s", self._directory
                )
            for stated in self._directory.glob(_MADE_BY_AUTHORITY):
                stated.unlink()
        for name in _FIXED:
            write_private(self._directory / name, files[name])
        # Users that were added here while no server ran are offered to the others.
        self._users = _lines(files[_USERS])
        text = users.read_text() if users.exists() else ""
        own = _lines(text)
        known = {line.split(",")[1] for line in self._users}
        wanted = self._users | {line for line in own if line.split(",")[1] not in known}
        if wanted != own:
            write_private(users, _arranged(wanted, text, files[_USERS]))


def _lines(text: str) -> frozenset[str]:
    return frozenset(line for line in text.splitlines() if line.count(","))


def _arranged(lines: frozenset[str], first: str, then: str) -> str:
    """These lines in the order of one text, and what it has not in that of another, so that who compares files sees no change."""
    order = dict.fromkeys((*first.splitlines(), *then.splitlines()))
    return "".join(f"{line}\n" for line in order if line in lines)


def _draft(files: Mapping[str, str]) -> bytes:
    document: Document = {"metadata": {"name": _AUTHORITY, "resourceVersion": "0"}, "files": dict(files)}
    return draft(document)
