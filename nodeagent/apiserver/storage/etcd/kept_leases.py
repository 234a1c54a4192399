"""Objects that are there for a while only: etcd ends them with a lease."""

from math import ceil
from typing import Final, NamedTuple

from nodeagent.apiserver.storage.etcd.cluster_client import Client
from nodeagent.apiserver.storage.records import Change, Revision

_SHORTEST_SECONDS: Final = 2


class _Kept(NamedTuple):
    """A lease, and the object it was given to: the revision that clients receive, value, seconds."""

    lease: int
    revision: int
    value: bytes
    seconds: int


class KeptLeases:
    """The leases this server has given, by key: an object that is only to stay for longer is not written again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[bytes, _Kept] = {}

    async def grant(self, seconds: float) -> int:
        """A new one. Raises EtcdFailed."""
        return await self._client.grant_lease(max(ceil(seconds), _SHORTEST_SECONDS))

    async def prolong(self, key: bytes, value: bytes | None, change: Change, known: Revision | None) -> Revision | None:
        """What is known of the object, once its lease was renewed; None where it has to be written. Raises EtcdFailed."""
        kept = self._kept.get(key)
        if kept is None or known is None or change.seconds is None:
            return None
        if (kept.revision, kept.value, kept.seconds) != (known.number, value, ceil(change.seconds)):
            return None
        if change.expected not in (None, kept.revision):
            return None
        return known if await self._client.renew_lease(kept.lease) else None

    def keep(self, key: bytes, lease: int, revision: int, value: bytes, seconds: float) -> None:
        """It was written with this lease."""
        self._kept[key] = _Kept(lease, revision, value, ceil(seconds))

    def forget(self, key: bytes) -> None:
        """The object has gone."""
        self._kept.pop(key, None)
