"""What a server reads when it starts: the releases of the members, the start of the history, and all objects at that revision."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Final

from nodeagent.apiserver.storage.etcd import etcd_messages
from nodeagent.apiserver.storage.etcd.cluster_client import Client, EtcdFailed
from nodeagent.apiserver.storage.etcd.etcd_messages import KeyValue
from nodeagent.apiserver.storage.etcd.layout import Layout, Unreadable
from nodeagent.apiserver.storage.etcd.outcomes import Outcome
from nodeagent.apiserver.storage.etcd.versions import is_recommended, parse_version
from nodeagent.apiserver.storage.records import Revision, StorageFailed, StorageUnreachable

logger = logging.getLogger(__name__)
COMPACT_KEY: Final = b"compact_rev_key"
"""kube-apiserver's key: its value is the revision that was compacted last, its version decides whose turn it is."""
_PAGE: Final = 2_000
_MOST_HISTORY: Final = 50_000
"""The most revisions that are read again; older ones are not offered, although etcd may have them."""
_MOST_LOGGED: Final = 10


@dataclass(frozen=True, slots=True)
class Range:
    """All objects at the revision `base`, where history begins. `latest`: the revision when loading began. `compactions`:
    version of the key that counts compactions. `unreadable`: key → why its value cannot be served."""

    rows: list[Revision]
    base: int
    latest: int
    cluster: int
    compactions: int
    unreadable: dict[bytes, str]


async def examine(client: Client) -> list[str]:
    """Logs the releases of the members. Returns a line for each member that does not answer. Then only its cluster is used.
    Raises StorageUnreachable if none answers for some seconds, StorageFailed if one is too old, or they belong to several clusters."""
    found = dict(zip(client.members, await client.statuses(), strict=True))
    failed = {member: status for member, status in found.items() if isinstance(status, EtcdFailed)}
    reasons = await asyncio.gather(*map(client.diagnose, failed))
    silent = [f"{member.endpoint}: {why or failed[member]}" for member, why in zip(failed, reasons, strict=True)]
    versions = {}
    clusters: dict[int, str] = {}
    for member, status in found.items():
        if not isinstance(status, EtcdFailed):
            endpoint = str(member.endpoint)
            versions[endpoint] = parse_version(status.version)
            clusters.setdefault(status.header.cluster, endpoint)
    if not versions:
        raise StorageUnreachable(f"no member of etcd answers: {'; '.join(silent)}")
    if len(clusters) > 1:
        raise StorageFailed(
            f"--etcd-servers names members of {len(clusters)} different clusters: {' and '.join(clusters.values())}"
        )
    (client.cluster,) = clusters
    for line in silent:
        logger.warning("a member of etcd does not answer: %s", line)
    for endpoint, version in versions.items():
        logger.info("etcd member=%s version=%d.%d.%d", endpoint, *version)
        if version < (3, 4, 0):
            raise StorageFailed(
                "{}: etcd {}.{}.{} is too old: 3.5.28 or 3.6.9 are the first for use".format(endpoint, *version)
            )
        if not is_recommended(version):
            logger.warning(
                "this release of etcd is for tests only: it is known to lose events or to read outdated data;"
                " 3.5.28 or 3.6.9 are the first for use member=%s version=%d.%d.%d",
                endpoint,
                *version,
            )
    return silent


async def load(client: Client, layout: Layout, at: int) -> Range:
    """Reads all objects, and as much history as is offered. at: seconds since 1970, used as their age. Raises EtcdFailed."""
    while True:
        marked = await client.read(etcd_messages.range_request(COMPACT_KEY))
        latest = marked.header.revision
        kept = marked.kvs[0] if marked.kvs else KeyValue()
        base = max(min(_number(kept.value), latest), latest - _MOST_HISTORY, 1)
        try:
            kvs = await _range(client, layout, base)
        except EtcdFailed as failed:
            if failed.outcome is not Outcome.COMPACTED:
                raise
            # Another program compacted it: then no history is offered.
            base = latest
            try:
                kvs = await _range(client, layout, base)
            except EtcdFailed as again:
                if again.outcome is not Outcome.COMPACTED:
                    raise
                continue
        unreadable: dict[bytes, str] = {}
        rows = _rows(layout, kvs, at, unreadable)
        return Range(rows, base, latest, marked.header.cluster, kept.version, unreadable)


async def _range(client: Client, layout: Layout, revision: int) -> list[KeyValue]:
    kvs: list[KeyValue] = []
    start = layout.start
    while True:
        page = await client.read(etcd_messages.range_request(start, layout.end, limit=_PAGE, revision=revision))
        kvs += page.kvs
        if not page.more:
            return kvs
        start = page.kvs[-1].key + b"\0"


def _rows(layout: Layout, kvs: list[KeyValue], at: int, unreadable: dict[bytes, str]) -> list[Revision]:
    rows = []
    foreign: Counter[str] = Counter()
    for kv in kvs:
        found = layout.locate(kv.key)
        if found is None:
            foreign[layout.first_part(kv.key)] += 1
            continue
        try:
            body = layout.body(*found, kv.value, kv.mod_revision)
        except Unreadable as error:
            unreadable[kv.key] = str(error)
            continue
        rows.append(Revision(kv.mod_revision, *found, body, deleted=False, at=at))
    for place, count in sorted(foreign.items()):
        logger.info("ignored, not served here place=%s keys=%d", place, count)
    for key, why in list(unreadable.items())[:_MOST_LOGGED]:
        logger.warning("ignored, cannot be read key=%s reason=%s", key.decode(errors="replace"), why)
    if len(unreadable) > _MOST_LOGGED:
        logger.warning("ignored, cannot be read further_keys=%d", len(unreadable) - _MOST_LOGGED)
    rows.sort(key=lambda row: row.number)
    return rows


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() else 0
