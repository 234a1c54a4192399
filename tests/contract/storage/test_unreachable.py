"""While etcd does not answer, writes are given up in time, however many there are, and are written when it answers again; a server that
starts waits for it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.apiserver.storage.etcd import cluster_client
from nodeagent.apiserver.storage.etcd.cluster_client import CALL_SECONDS, Client
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.apiserver.storage.etcd.storage import EtcdStorage
from nodeagent.apiserver.storage.records import Change, Precondition, StorageUncertain, StorageUnreachable, draft
from nodeagent.apiserver.storage.store import Store
from tests.harness.etcd import EtcdCluster, Member, needs_etcd, running

MANY = 900
"""Seven times as many as are asked for at once: given up in turns, the last would take eight times as long as the first."""


def store_on(cluster: EtcdCluster) -> Store:
    client = Client([Endpoint(*one) for one in cluster.endpoints])
    return Store(EtcdStorage(client, Layout("/registry", {}), clock=lambda: 0.0), clock=lambda: 0.0)


def put(name: str, expected: int) -> list[Change]:
    body = {"metadata": {"name": name, "resourceVersion": "0"}, "value": expected}
    return [Change("things", name, expected, draft(body))]


@needs_etcd
def test_of_many_writes_none_waits_for_others_to_be_given_up(tmp_path: Path) -> None:
    async def given_up(store: Store, number: int, expected: int) -> tuple[float, type[Exception]]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await store.commit(put(f"n{number}", expected))
        except (StorageUnreachable, StorageUncertain) as error:
            return loop.time() - began, type(error)
        raise AssertionError("it was written")

    async def scenario() -> None:
        with running(tmp_path) as cluster:
            async with store_on(cluster) as store:
                made = await asyncio.gather(*(store.commit(put(f"n{number}", 0)) for number in range(MANY)))
                revisions = [record.revision for (record,) in made]
                cluster.members[0].freeze()
                try:
                    ended = await asyncio.gather(*(given_up(store, *one) for one in enumerate(revisions)))
                finally:
                    cluster.members[0].thaw()
                seconds = [one for one, _ in ended]
                assert max(seconds) < 5 * min(seconds)
                # Those that were never asked for are not there later.
                never = [number for number, (_, error) in enumerate(ended) if error is StorageUnreachable]
                assert len(never) > MANY / 2
                async with asyncio.timeout(60):
                    for number in (never[0], never[-1]):
                        await until_written(store, f"n{number}", revisions[number])

    async def until_written(store: Store, name: str, expected: int) -> None:
        while True:
            try:
                await store.commit(put(name, expected))
            except (StorageUnreachable, StorageUncertain):
                continue
            except Precondition:
                pass  # by an earlier attempt, of which nobody knew
            return

    asyncio.run(scenario())


@needs_etcd
@pytest.mark.parametrize(
    ("away", "back"), [(Member.freeze, Member.thaw), (Member.kill, Member.start)], ids=["without an answer", "refused"]
)
def test_a_server_that_starts_waits_for_an_etcd_that_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    away: Callable[[Member], None],
    back: Callable[[Member], None],
) -> None:
    monkeypatch.setattr(cluster_client, "READ_SECONDS", 60.0)  # on a busy machine an etcd starts slowly

    async def scenario() -> None:
        with running(tmp_path) as cluster:
            (member,) = cluster.members
            away(member)
            opened = asyncio.create_task(store_on(cluster).__aenter__())
            try:
                await asyncio.sleep(CALL_SECONDS * 1.5)
                assert not opened.done()
            finally:
                back(member)
            async with asyncio.timeout(60):
                await (await opened).__aexit__(None, None, None)

    asyncio.run(scenario())


@needs_etcd
def test_a_server_that_starts_gives_up_an_etcd_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_client, "READ_SECONDS", CALL_SECONDS / 2)

    async def scenario() -> None:
        with running(tmp_path) as cluster:
            cluster.members[0].kill()
            with pytest.raises(StorageUnreachable, match=r"no member of etcd answers: 127\.0\.0\.1:[0-9]+: "):
                await store_on(cluster).__aenter__()

    asyncio.run(scenario())
