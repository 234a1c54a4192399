"""Shares one certificate authority, one key for account tokens and one list of users between all servers of a store.

They are kept in the store (a user who can read it can read every Secret anyway) and are copied into each server's directory
when it starts. Users that are added to or removed from the file of one server are added or removed everywhere, within seconds.
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
_NAMES_FILES: Final = "*.names"
"""Each has the names that a certificate is for; without it, the certificate is made again."""
_SYNC_EVERY_SECONDS: Final = 2.0


class SharedCredentials:
    """Keeps the credentials in `directory` and in the store the same."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._users: frozenset[str] = frozenset()
        """The lines of the file of users on which store and file last agreed."""
        self._is_new = False
        """Whether the directory had no certificate authority before this start."""

    async def fetch(self) -> bool:
        """Writes the credentials of the store into the directory, before others are made there. Returns False if it has none."""
        record = self._store.get(COLLECTION, _AUTHORITY)
        if record is None:
            self._is_new = not await asyncio.to_thread((self._directory / _FIXED[0]).exists)
            return False
        await asyncio.to_thread(self._write, record.document()["files"])
        return True

    async def offer(self) -> bool:
        """Stores the credentials of the directory. Returns False if another server was faster. Raises StorageFailed."""
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
                await self.sync_users()
            except (Precondition, StorageFailed, StorageFull, OSError) as error:
                logger.debug("users not synchronised error=%s", error)
            await asyncio.sleep(_SYNC_EVERY_SECONDS)

    async def sync_users(self) -> None:
        """Merges the users: applies what was added to or removed from the file since the last call, otherwise the store wins."""
        record = self._store.get(COLLECTION, _AUTHORITY)
        if record is None:
            return
        path = self._directory / _USERS
        files = record.document()["files"]
        text_here, text_there = await asyncio.to_thread(path.read_text), files[_USERS]
        own, stored = _lines(text_here), _lines(text_there)
        wanted = (stored | (own - self._users)) - (self._users - own)
        if wanted != stored:
            changed = _draft({**files, _USERS: _ordered(wanted, text_there, text_here)})
            await self._store.commit([Change(COLLECTION, _AUTHORITY, record.revision, changed)])
        if wanted != own:
            await asyncio.to_thread(write_private, path, _ordered(wanted, text_here, text_there))
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
                    "the store has another certificate authority, which replaces that of the directory directory=%s",
                    self._directory,
                )
            for names_file in self._directory.glob(_NAMES_FILES):
                names_file.unlink()
        for name in _FIXED:
            write_private(self._directory / name, files[name])
        # Users that were added to the file while no server ran are kept: `sync_users` puts them into the store.
        self._users = _lines(files[_USERS])
        text = users.read_text() if users.exists() else ""
        own = _lines(text)
        known = {line.split(",")[1] for line in self._users}
        wanted = self._users | {line for line in own if line.split(",")[1] not in known}
        if wanted != own:
            write_private(users, _ordered(wanted, text, files[_USERS]))


def _lines(text: str) -> frozenset[str]:
    return frozenset(line for line in text.splitlines() if line.count(","))


def _ordered(lines: frozenset[str], first: str, then: str) -> str:
    """Returns the lines in the order of the text `first`, then of `then`, so that comparing files shows no needless change."""
    order = dict.fromkeys((*first.splitlines(), *then.splitlines()))
    return "".join(f"{line}\n" for line in order if line in lines)


def _draft(files: Mapping[str, str]) -> bytes:
    document: Document = {"metadata": {"name": _AUTHORITY, "resourceVersion": "0"}, "files": dict(files)}
    return draft(document)
