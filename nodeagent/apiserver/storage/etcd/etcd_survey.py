"""Checks of an etcd before a server uses it: the permission to write, and keys of other programs."""

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
"""No key is ever written this many times."""


async def check_rights(client: Client, layout: Layout) -> None:
    """Sends a transaction whose condition never holds: etcd checks the permission to write, and writes nothing. Raises
    EtcdFailed if that is not allowed; other failures are ignored."""
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


async def check_cluster(client: Client, layout: Layout, seen: LastSeen | None) -> None:
    """Checks that this server may use the etcd. Raises EtcdFailed, and StorageFailed if it must not start."""
    silent = await examine(client)
    if silent and seen is not None and seen.cluster != client.cluster:
        # A single member may have been started as a new, empty cluster.
        raise StorageUnreachable(
            "etcd is another cluster than when this server last ran, and not all of its members answer:"
            f" {'; '.join(silent)}"
        )
    new = await is_new(client, layout)
    await check_rights(client, layout)
    if new:
        await warn_of_foreign_keys(client, layout)


async def is_new(client: Client, layout: Layout) -> bool:
    """Returns whether no server has used this prefix. Raises EtcdFailed, and StorageFailed if a server uses a prefix above it."""
    for start, end in layout.internal_above:
        found = await _peek(client, etcd_messages.range_request(start, end, limit=1, keys_only=True))
        if found:
            raise StorageFailed(
                f"--etcd-prefix {layout.prefix} lies within that of another API server, whose key is {_shown(found)}"
            )
    reply = await client.read(etcd_messages.range_request(layout.start, layout.end, limit=1, keys_only=True))
    return not reply.kvs


async def warn_of_foreign_keys(client: Client, layout: Layout) -> None:
    """Warns if the prefix is new but the etcd has other keys: the operator may have mistyped the prefix."""
    for start, end in ((b"\0", layout.start), (layout.end, b"\0")):
        keys = [
            key
            for key in await _peek(client, etcd_messages.range_request(start, end, limit=2, keys_only=True))
            if key != COMPACT_KEY
        ]
        if keys:
            logger.warning(
                "nothing is stored below this prefix yet, but this etcd has other keys: is it the prefix of the other servers?"
                " prefix=%s key=%s",
                layout.prefix,
                _shown(keys),
            )
            return


async def _peek(client: Client, request: bytes) -> list[bytes]:
    """Returns the keys that this user may read: an empty list for a user with rights only below the prefix."""
    try:
        return [kv.key for kv in (await client.read_optional(request)).kvs]
    except EtcdFailed as failed:
        if failed.outcome is not Outcome.DENIED:
            raise
        return []


def _shown(keys: list[bytes]) -> str:
    return keys[0].decode(errors="replace")
