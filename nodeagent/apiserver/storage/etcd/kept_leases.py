"""Objects that expire: etcd deletes them with their lease."""

from math import ceil
from typing import Final, NamedTuple

from nodeagent.apiserver.storage.etcd.cluster_client import Client
from nodeagent.apiserver.storage.records import Change, Revision

_SHORTEST_SECONDS: Final = 2


class _GrantedLease(NamedTuple):
    """A lease and the object that was written with it: revision, value and duration in seconds."""

    lease: int
    revision: int
    value: bytes
    seconds: int


class KeptLeases:
    """The leases that this server granted, by key: an object that is only renewed is not written again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[bytes, _GrantedLease] = {}

    async def grant(self, seconds: float) -> int:
        """Returns the id of a new lease. Raises EtcdFailed."""
        return await self._client.grant_lease(max(ceil(seconds), _SHORTEST_SECONDS))

    async def renew(self, key: bytes, value: bytes | None, change: Change, known: Revision | None) -> Revision | None:
        """Renews the lease and returns the known object, or returns None if the object must be written. Raises EtcdFailed."""
        kept = self._kept.get(key)
        if kept is None or known is None or change.seconds is None:
            return None
        if (kept.revision, kept.value, kept.seconds) != (known.number, value, ceil(change.seconds)):
            return None
        if change.expected not in (None, kept.revision):
            return None
        return known if await self._client.renew_lease(kept.lease) else None

    def keep(self, key: bytes, lease: int, revision: int, value: bytes, seconds: float) -> None:
        """Records that the object was written with this lease."""
        self._kept[key] = _GrantedLease(lease, revision, value, ceil(seconds))

    def forget(self, key: bytes) -> None:
        """Drops the lease of an object that was deleted."""
        self._kept.pop(key, None)
