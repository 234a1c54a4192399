"""Revisions that only rise, though etcd's go back when it is restored from a snapshot: what is added to them.

All servers add the same, which is kept in etcd beside the cluster it is for. What a server remembers of its own tells it that
etcd went back also where the snapshot has the same cluster's number.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec

from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.cluster_client import READ_SECONDS, Client, EtcdFailed
from nodeagent.apiserver.storage.etcd.outcomes import Outcome
from nodeagent.apiserver.storage.records import StorageFailed

STEP: Final = 1_000_000_000
"""More changes than there are from one restore to the next."""
_NEVER: Final = 1 << 62
_PAUSE_SECONDS: Final = 0.05


class Numbering(msgspec.Struct, frozen=True):
    """Of which cluster, by its number, and what is added to its revisions."""

    cluster: int
    ahead: int = 0

    def to_client(self, revision: int) -> int:
        """Converts a revision of etcd to the revision that clients receive."""
        return revision + self.ahead

    def to_etcd(self, revision: int) -> int:
        """Converts a revision of a client to etcd's. For one from before the restore, returns a revision that never occurs."""
        if revision == 0:
            return 0
        return revision - self.ahead if revision > self.ahead else _NEVER


class Remembered(msgspec.Struct, frozen=True):
    """highest: the latest revision that any client received."""

    numbering: Numbering
    highest: int


class Memory:
    """What a server remembers from one start to the next, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: Remembered | None = None

    def read(self) -> Remembered | None:
        """None without a file. Raises StorageFailed where it says nothing."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Remembered)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StorageFailed(f"{self._path} cannot be read, remove it if etcd was not restored: {error}") from None

    def write(self, remembered: Remembered) -> None:
        """Raises StorageFailed."""
        if remembered == self._written:
            return
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.write_bytes(msgspec.json.encode(remembered))
            beside.replace(self._path)
        except OSError as error:
            raise StorageFailed(f"{self._path} cannot be written: {error}") from None
        self._written = remembered


def decide(cluster: int, revision: int, kept: Numbering | None, remembered: Remembered | None) -> Numbering:
    """The numbering for a cluster that is at this revision; `kept` is what it holds itself. Pure."""
    ahead = kept.ahead if kept is not None else 0
    goes_on = kept is None or kept.cluster == cluster
    # Once the numbering is raised, no revision that a client received before can occur again.
    if remembered is not None and remembered.numbering.ahead >= ahead:
        ahead = remembered.numbering.ahead
        kept_ahead = kept.ahead if kept is not None else 0
        goes_on = (
            goes_on
            and kept_ahead == ahead
            and remembered.numbering.cluster == cluster
            and remembered.highest <= revision + ahead
        )
    return Numbering(cluster, ahead if goes_on else ahead + STEP)


def read_numbering(value: bytes) -> Numbering | None:
    """None where it says nothing."""
    try:
        return msgspec.json.decode(value, type=Numbering)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


async def agree(client: Client, key: bytes, remembered: Remembered | None) -> Numbering:
    """The numbering of all servers, which is written where it has changed. Raises EtcdFailed."""
    ends = time.monotonic() + READ_SECONDS
    while True:
        reply = await client.read(etcd_messages.range_request(key, limit=1))
        kept = read_numbering(reply.kvs[0].value) if reply.kvs else None
        wanted = decide(reply.header.cluster, reply.header.revision, kept, remembered)
        if wanted == kept:
            return wanted
        compared = etcd_messages.compare(key, etcd_messages.MODIFIED, reply.kvs[0].mod_revision if reply.kvs else 0)
        put = etcd_messages.as_put(etcd_messages.put_request(key, msgspec.json.encode(wanted)))
        try:
            await client.txn(etcd_messages.txn_request([compared], [put]))
        except EtcdFailed as failed:
            if failed.outcome is Outcome.FULL and wanted == Numbering(wanted.cluster):
                return wanted
            if failed.outcome not in (Outcome.NOT_DONE, Outcome.UNKNOWN) or time.monotonic() >= ends:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
