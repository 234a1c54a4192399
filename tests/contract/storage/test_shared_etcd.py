"""An etcd that others use, too: rights below a prefix, and prefixes beside and within one another."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.apiserver.storage.etcd.cluster_client import Client
from nodeagent.apiserver.storage.etcd.layout import Layout
from nodeagent.apiserver.storage.etcd.rpc import Endpoint
from nodeagent.apiserver.storage.etcd.storage import EtcdStorage
from nodeagent.apiserver.storage.etcd.tls_files import RenewedContext
from nodeagent.apiserver.storage.records import Change, StorageFailed, draft
from nodeagent.apiserver.storage.store import Store
from tests.harness.etcd import PROGRAM, EtcdCluster, Files, needs_etcd, running

pytestmark = needs_etcd
DEADLINE_SECONDS = 90.0
NEW = "nothing is stored below this prefix yet"
RIGHTS = "has to be a user of etcd with all rights below --etcd-prefix"
EVERYTHING = ("--prefix=true", "")
"""The range of all keys: what is needed with releases that have to be watched whole."""


def store_of(cluster: EtcdCluster, prefix: str = "/registry", files: Files | None = None) -> Store:
    context = RenewedContext.of(files.authority, *files.client) if files is not None else None
    client = Client([Endpoint(*one) for one in cluster.endpoints], context)
    return Store(EtcdStorage(client, Layout(prefix, {}), clock=lambda: 0.0), clock=lambda: 0.0)


def create(name: str) -> list[Change]:
    return [Change("things", name, 0, draft({"metadata": {"name": name, "resourceVersion": "0"}}))]


async def settles(store: Store, condition: Callable[[], bool]) -> None:
    """Looking around as a server does."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            with contextlib.suppress(StorageFailed):
                await store.catch_up()
            if condition():
                return
            await asyncio.sleep(0.05)


async def why_not(store: Store) -> str:
    with pytest.raises(StorageFailed) as refused:
        async with store:
            pass
    return str(refused.value)


def test_prefixes_beside_and_within_one_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with running(tmp_path) as cluster:
            async with store_of(cluster, "registry/") as first:
                await first.commit(create("a"))
            assert NEW not in caplog.text
            async with store_of(cluster, "//registry") as same:
                assert set(same.collection("things").records) == {"a"}
            assert NEW not in caplog.text
            assert "lies within that of another" in await why_not(store_of(cluster, "/registry/other"))
            async with store_of(cluster, "/registry2") as other:
                assert set(other.collection("things").records) == set()
                await other.commit(create("b"))
            assert caplog.text.count(NEW) == 1
            async with store_of(cluster, "/registry2"):
                pass
            assert caplog.text.count(NEW) == 1

    asyncio.run(scenario())


def test_a_user_without_rights_learns_which_are_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = Files.make(tmp_path)
    connection: list[str | Path] = ["--cacert", files.authority, "--cert", files.client[0], "--key", files.client[1]]

    async def scenario() -> None:
        with running(tmp_path / "etcd", files=files) as cluster:

            async def etcdctl(*arguments: str, as_root: bool = True) -> None:
                user = ["--user", "root:pass"] if as_root else []
                command: list[str | Path] = [
                    PROGRAM.with_name("etcdctl"),
                    "--endpoints",
                    cluster.urls,
                    *connection,
                    *user,
                    *arguments,
                ]
                environment = {**os.environ, "ETCDCTL_API": "3"}

                def run() -> None:
                    subprocess.run(command, check=True, capture_output=True, env=environment)

                await asyncio.to_thread(run)

            for arguments in ("user add root:pass", "role add root", "user grant-role root root", "role add ours"):
                await etcdctl(*arguments.split(), as_root=False)
            async with store_of(cluster, files=files) as store:
                await store.commit(create("a"))
                await settles(store, lambda: store.reachable)
                await etcdctl("auth", "enable", as_root=False)
                await settles(store, lambda: not store.reachable)
                assert RIGHTS in store.failure_reason
                assert caplog.text.count("etcd cannot be used") == 1
                assert RIGHTS in await why_not(store_of(cluster, files=files))
                await etcdctl("user", "add", "client:pass")
                await etcdctl("role", "grant-permission", "ours", "read", *EVERYTHING)
                await etcdctl("user", "grant-role", "client", "ours")
                # A server that may only read does not start; one that tries to write gets an error.
                assert RIGHTS in await why_not(store_of(cluster, files=files))
                with pytest.raises(StorageFailed, match=RIGHTS):
                    await store.commit(create("b"))
                await settles(store, lambda: not store.reachable)
                await etcdctl("role", "grant-permission", "ours", "readwrite", *EVERYTHING)
                await settles(store, lambda: store.reachable)
                assert store.failure_reason == ""
                await store.commit(create("b"))
            async with store_of(cluster, files=files) as store:
                assert set(store.collection("things").records) == {"a", "b"}

    asyncio.run(scenario())
