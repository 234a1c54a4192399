"""History is given up by one server at a time, as kube-apiserver does it."""

from nodeagent.controlplane.storage.etcd import messages
from nodeagent.controlplane.storage.etcd.client import Client, EtcdFailed
from nodeagent.controlplane.storage.etcd.loading import COMPACT_KEY
from nodeagent.controlplane.storage.etcd.outcomes import Outcome


class Compaction:
    """Compacts etcd, if this server wins the update of kube-apiserver's compaction key (apiserver's etcd3/compact.go)."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._times = 0

    def begin(self, times: int) -> None:
        """times: the version of that key, as it was read."""
        self._times = times

    async def compact(self, floor: int, *, counted: bool) -> None:
        """Give up what is below this revision of etcd's, unless another server has done so meanwhile. counted: False where
        etcd has no room for another write. Raises EtcdFailed."""
        if counted and not await self._is_our_turn(floor):
            return
        try:
            await self._client.compact(floor)
        except EtcdFailed as failed:
            if failed.outcome is not Outcome.COMPACTED:
                raise

    async def _is_our_turn(self, floor: int) -> bool:
        mine = messages.compare(COMPACT_KEY, messages.VERSION, self._times)
        put = messages.as_put(messages.put_request(COMPACT_KEY, b"%d" % floor))
        other = messages.as_range(messages.range_request(COMPACT_KEY))
        reply = await self._client.txn(messages.txn_request([mine], [put], [other]))
        if reply.succeeded:
            self._times += 1
        else:
            kvs = reply.ranges[0].kvs
            self._times = kvs[0].version if kvs else 0
        return reply.succeeded
