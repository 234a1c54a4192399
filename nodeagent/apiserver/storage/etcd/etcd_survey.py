"""What is asked of an etcd before a server lives in it: whether it may write there, and who else has keys there."""

import logging
from typing import Final

from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.cluster_client import Client, EtcdFailed
from nodeagent.apiserver.storage.etcd.last_seen import LastSeen
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.etcd.loading import COMPACT_KEY, examine
from nodeagent.apiserver.storage.etcd.outcomes import Outcome
from nodeagent.apiserver.storage.records import StorageFailed, StorageUnreachable

logger = logging.getLogger(__name__)
_NEVER: Final = 1 << 62
"""No key has been written so often."""


async def prove_rights(client: Client, layout: Layout) -> None:
    """Sends a transaction whose condition never holds: etcd checks the permission to write, and writes nothing.

    Raises EtcdFailed where that is not allowed; other failures pass.
    """
    never = etcd_messages.compare(COMPACT_KEY, etcd_messages.VERSION, _NEVER)
    puts = [
        etcd_messages.as_put(etcd_messages.put_request(key, b""))
        for key in (layout.internal_start + b"rights", COMPACT_KEY)
    ]
    try:
        await client.txn(etcd_messages.txn_request([never], puts))
    except EtcdFailed as failed:
        if failed.outcome is Outcome.DENIED:
            raise


async def settle_in(client: Client, layout: Layout, seen: LastSeen | None) -> None:
    """Returns when it is sure that this server may live here. Raises EtcdFailed, and StorageFailed where it should not start."""
    silent = await examine(client)
    if silent and seen is not None and seen.cluster != client.cluster:
        # One member alone may have been started as a cluster of its own, with nothing in it.
        raise StorageUnreachable(
            "etcd is another cluster than when this server last ran, and not all of its members answer:"
            f" {'; '.join(silent)}"
        )
    new = await is_new(client, layout)
    await prove_rights(client, layout)
    if new:
        await warn_of_others(client, layout)


async def is_new(client: Client, layout: Layout) -> bool:
    """No server has lived below this prefix. Raises EtcdFailed, and StorageFailed where one lives above it."""
    for start, end in layout.internal_above:
        found = await _peek(client, etcd_messages.range_request(start, end, limit=1, keys_only=True))
        if found:
            raise StorageFailed(
                f"--etcd-prefix {layout.prefix} lies within that of another API server, whose key is {_shown(found)}"
            )
    reply = await client.read(etcd_messages.range_request(layout.start, layout.end, limit=1, keys_only=True))
    return not reply.kvs


async def warn_of_others(client: Client, layout: Layout) -> None:
    """A prefix that is new, in an etcd that others use, may be a slip of who starts a further server."""
    for start, end in ((b"\0", layout.start), (layout.end, b"\0")):
        keys = [
            key
            for key in await _peek(client, etcd_messages.range_request(start, end, limit=2, keys_only=True))
            if key != COMPACT_KEY
        ]
        if keys:
            logger.warning(
                "nothing is stored below this prefix yet, and others have keys in this etcd: is it the one of the other servers?"
                " prefix=%s key=%s",
                layout.prefix,
                _shown(keys),
            )
            return


async def _peek(client: Client, request: bytes) -> list[bytes]:
    """The keys that this user may read: a user with rights only below the prefix gets an empty list."""
    try:
        return [kv.key for kv in (await client.look(request)).kvs]
    except EtcdFailed as failed:
        if failed.outcome is not Outcome.DENIED:
            raise
        return []


def _shown(keys: list[bytes]) -> str:
    return keys[0].decode(errors="replace")
