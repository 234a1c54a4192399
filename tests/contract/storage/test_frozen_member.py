"""A member of etcd that is frozen while much is being sent to it: the storage goes on with another, and leaves nothing behind there."""

import asyncio
from pathlib import Path

from nodeagent.apiserver.storage.etcd.cluster_client import Client
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.apiserver.storage.etcd.storage import EtcdStorage
from nodeagent.apiserver.storage.records import Change, Precondition, StorageFailed, draft
from nodeagent.apiserver.storage.store import Store
from tests.harness.etcd import needs_etcd, running

MANY = 40
SIZE = 20_000
"""Together several times what HTTP/2 lets a connection send before the other side has read any."""


def create(name: str) -> list[Change]:
    body = {"metadata": {"name": name, "resourceVersion": "0"}, "filling": "x" * SIZE}
    return [Change("things", name, 0, draft(body))]


async def until_written(store: Store, name: str) -> None:
    while True:
        try:
            await store.commit(create(name))
        except StorageFailed:
            continue
        except Precondition:
            pass  # by an earlier attempt, of which nobody knew
        return


@needs_etcd
def test_a_watch_leaves_a_member_that_reads_nothing_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        with running(tmp_path, 3) as cluster:
            client = Client([Endpoint(*one) for one in cluster.endpoints])
            async with Store(
                EtcdStorage(client, Layout("/registry", {}), clock=lambda: 0.0), clock=lambda: 0.0
            ) as store:
                await store.commit(create("first"))
                asked = cluster.members[list(client.members).index(client.member)]
                asked.freeze()
                try:
                    async with asyncio.timeout(60):
                        await asyncio.gather(*(until_written(store, f"n{number}") for number in range(MANY)))
                finally:
                    asked.thaw()
                # What could not be sent has used up nothing for good.
                async with asyncio.timeout(60):
                    for number in range(MANY):
                        while cluster.members[list(client.members).index(client.member)] is not asked:
                            client.switch_from(client.member)
                        await until_written(store, f"again-{number}")

    asyncio.run(scenario())
