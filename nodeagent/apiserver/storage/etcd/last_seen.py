"""Detects an etcd whose revisions went back: it would assign revisions that clients know to other changes."""

from pathlib import Path
from typing import Final

import msgspec

from nodeagent.apiserver.storage.records import StorageFailed
from nodeagent.wire.unreadable import UNREADABLE

_BUMP_AT_LEAST: Final = 100_000
"""How far another cluster must be beyond the last seen revision: more changes than a server can miss between two checks."""


class LastSeen(msgspec.Struct, frozen=True):
    """The id of the cluster, and the latest revision of it that clients of this server may have received."""

    cluster: int
    revision: int

    def is_continued_by(self, cluster: int, revision: int) -> bool:
        """Returns whether a cluster that is at `revision` will give its next changes higher revisions than ours."""
        return revision >= self.revision + (0 if cluster == self.cluster else _BUMP_AT_LEAST)


class LastSeenFile:
    """Keeps what a server saw last, from one start to the next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: LastSeen | None = None

    def read(self) -> LastSeen | None:
        """Returns None without a file. Raises StorageFailed if it cannot be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=LastSeen)
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE) as error:
            raise StorageFailed(f"{self._path} cannot be read, remove it if etcd was not restored: {error}") from None

    def write(self, seen: LastSeen) -> None:
        """Replaces the file if its content changes. Raises StorageFailed."""
        if seen == self._written:
            return
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.write_bytes(msgspec.json.encode(seen))
            beside.replace(self._path)
        except OSError as error:
            raise StorageFailed(f"{self._path} cannot be written: {error}") from None
        self._written = seen

    def check(self, seen: LastSeen | None, cluster: int, revision: int) -> None:
        """Raises StorageFailed if the cluster may assign known revisions to other changes."""
        if seen is not None and not seen.is_continued_by(cluster, revision):
            raise StorageFailed(
                f"etcd was restored and went back: it is at revision {revision}, clients of this server know {seen.revision}."
                " Restore it again with etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted;"
                f" or stop all clients, remove {self._path} and start them again"
            )
