"""Members of etcd that join, leave, or belong to another cluster, under a storage that goes on."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nodeagent.apiserver.storage.etcd.cluster_client import Client
from nodeagent.apiserver.storage.etcd.last_seen import LastSeen, LastSeenFile
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.apiserver.storage.etcd.storage import EtcdStorage
from nodeagent.apiserver.storage.records import Change, StorageFailed, StorageUnreachable, draft
from nodeagent.apiserver.storage.store import Store
from tests.harness.etcd import EtcdCluster, needs_etcd, running

pytestmark = needs_etcd
DEADLINE_SECONDS = 90.0
NUMBER = 7
"""Of a cluster that never was."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EtcdCluster, EtcdCluster]]:
    """Two clusters of one member."""
    place = tmp_path_factory.mktemp("etcd")
    with running(place / "ours") as ours, running(place / "another") as another:
        yield ours, another


def store_of(
    endpoints: Sequence[tuple[str, int]], prefix: str, memory: LastSeenFile | None = None
) -> tuple[Client, Store]:
    client = Client([Endpoint(*one) for one in endpoints])
    return client, Store(EtcdStorage(client, Layout(prefix, {}), clock=lambda: 0.0, memory=memory), clock=lambda: 0.0)


def create(name: str) -> list[Change]:
    return [Change("things", name, 0, draft({"metadata": {"name": name, "resourceVersion": "0"}}))]


async def until_written(store: Store, name: str) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                await store.commit(create(name))
            except StorageFailed:
                continue
            return


async def names_in(cluster: EtcdCluster, prefix: str) -> set[str]:
    _, store = store_of(cluster.endpoints, prefix)
    async with store:
        return set(store.collection("things").records)


def test_members_of_several_clusters_are_no_cluster(two: tuple[EtcdCluster, EtcdCluster]) -> None:
    async def scenario() -> None:
        ours, another = two
        _, store = store_of([*ours.endpoints, *another.endpoints], "/mixed")
        with pytest.raises(StorageFailed, match="members of 2 different clusters"):
            async with store:
                pass

    asyncio.run(scenario())


def test_nothing_is_written_to_a_member_that_has_come_up_as_a_cluster_of_its_own(
    two: tuple[EtcdCluster, EtcdCluster], caplog: pytest.LogCaptureFixture
) -> None:
    ours, another = two
    (member,) = another.members

    async def scenario() -> None:
        client, store = store_of([*ours.endpoints, *another.endpoints], "/astray")
        async with store:
            member.start()
            await asyncio.to_thread(another.is_well)
            for number in range(6):
                # Whichever is asked first.
                client.switch_from(client.member)
                await until_written(store, f"n{number}")
            await store.catch_up()
        assert await names_in(ours, "/astray") == {f"n{number}" for number in range(6)}
        assert await names_in(another, "/astray") == set()
        assert "member of another cluster" in caplog.text

    member.kill()
    try:
        asyncio.run(scenario())
    finally:
        if member.ended:
            member.start()


def test_another_cluster_is_believed_only_when_all_members_say_so(
    two: tuple[EtcdCluster, EtcdCluster], tmp_path: Path
) -> None:
    ours, _ = two

    async def scenario() -> None:
        memory = LastSeenFile(tmp_path / "seen.json")
        memory.write(LastSeen(NUMBER, 5))
        nobody = EtcdCluster.spare(ours)[1].rpartition(":")[2]
        _, store = store_of([*ours.endpoints, ("127.0.0.1", int(nobody))], "/alone", memory)
        with pytest.raises(StorageUnreachable, match=f"not all of its members answer: .*{nobody}: Connection refused"):
            async with store:
                pass
        # Without the one that is silent it is a cluster that was restored, and it is not beyond what was seen.
        _, store = store_of(ours.endpoints, "/alone", memory)
        with pytest.raises(StorageFailed, match="etcdutl snapshot restore --bump-revision"):
            async with store:
                pass
        # Control: nothing was seen before.
        _, store = store_of(ours.endpoints, "/alone", LastSeenFile(tmp_path / "new.json"))
        async with store:
            await until_written(store, "n")

    asyncio.run(scenario())


def test_a_storage_goes_on_while_its_members_are_replaced_by_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        with running(tmp_path) as cluster:
            place = cluster.spare()
            host, _, port = place[1].removeprefix("http://").rpartition(":")
            _, store = store_of([*cluster.endpoints, (host, int(port))], "/registry")
            async with store:
                await until_written(store, "before")
                await asyncio.to_thread(cluster.join, place)
                await until_written(store, "joined")
                await asyncio.to_thread(cluster.leave, cluster.members[0])
                await until_written(store, "left")
                await store.catch_up()
                assert set(store.collection("things").records) == {"before", "joined", "left"}
            assert await names_in(cluster, "/registry") == {"before", "joined", "left"}

    asyncio.run(scenario())
