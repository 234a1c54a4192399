"""Compaction of etcd's history by one server at a time, as kube-apiserver does it."""

from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.cluster_client import Client, EtcdFailed
from nodeagent.apiserver.storage.etcd.loading import COMPACT_KEY
from nodeagent.apiserver.storage.etcd.outcomes import Outcome


class Compaction:
    """Compacts etcd, if this server wins the update of kube-apiserver's compaction key (apiserver's etcd3/compact.go)."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._times = 0

    def begin(self, times: int) -> None:
        """Sets the version of that key at the start."""
        self._times = times

    async def compact(self, floor: int, *, counted: bool) -> None:
        """Compacts the history below `floor`, unless another server did. `counted`: False while etcd cannot write the key.
        Raises EtcdFailed."""
        if counted and not await self._wins_turn(floor):
            return
        try:
            await self._client.compact(floor)
        except EtcdFailed as failed:
            if failed.outcome is not Outcome.COMPACTED:
                raise

    async def _wins_turn(self, floor: int) -> bool:
        mine = etcd_messages.compare(COMPACT_KEY, etcd_messages.VERSION, self._times)
        put = etcd_messages.as_put(etcd_messages.put_request(COMPACT_KEY, b"%d" % floor))
        other = etcd_messages.as_range(etcd_messages.range_request(COMPACT_KEY))
        reply = await self._client.txn(etcd_messages.txn_request([mine], [put], [other]))
        if reply.succeeded:
            self._times += 1
        else:
            kvs = reply.ranges[0].kvs
            self._times = kvs[0].version if kvs else 0
        return reply.succeeded
