"""`nodeagent apiserver` with --storage etcd: a process of its own, moving there, snapshots, and what it refuses to start with."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nodeagent.apiserver.storage.records import Change
from nodeagent.apiserver.storage.store import Store
from nodeagent.apiserver.storages import EtcdSettings, etcd_storage
from nodeagent.cli.apiserver import apiserver_command
from nodeagent.cli.exit_codes import FAILED, UNUSABLE
from nodeagent.kinds.catalog import all_kinds
from tests.contract.apiserver.conftest import Api, ServerThread
from tests.harness.etcd import EtcdCluster, Files, needs_etcd, running

SERVICES = "/api/v1/namespaces/default/services"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Iterator[EtcdCluster]:
    """One that wants certificates."""
    with running(tmp_path_factory.mktemp("etcd"), 1, files=files) as cluster:
        yield cluster


def run(*arguments: object) -> Result:
    return CliRunner().invoke(apiserver_command, [str(one) for one in arguments])


def flags(files: Files) -> list[object]:
    certificate, key = files.client
    return ["--etcd-cafile", files.authority, "--etcd-certfile", certificate, "--etcd-keyfile", key]


def settings(etcd: EtcdCluster, files: Files, prefix: str) -> EtcdSettings:
    certificate, key = files.client
    return EtcdSettings(
        servers=tuple(etcd.endpoints),
        secure=True,
        cafile=files.authority,
        certfile=certificate,
        keyfile=key,
        prefix=prefix,
    )


def entries_of(etcd: EtcdCluster, files: Files, prefix: str) -> dict[tuple[str, str], Any]:
    """All objects below a prefix."""

    async def read() -> dict[tuple[str, str], Any]:
        storage = etcd_storage(settings(etcd, files, prefix), all_kinds(), lambda: 0.0)
        async with Store(storage, clock=lambda: 0.0) as store:
            return {
                (name, path): record.document()
                for name in store.names
                for path, record in store.collection(name).records.items()
            }

    return asyncio.run(read())


def filled(directory: Path) -> dict[str, Any]:
    """A server on SQLite that has lived; its services by name."""
    api = Api(ServerThread(directory))
    for number in range(5):
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        assert api.call("POST", SERVICES, {"metadata": {"name": f"web-{number}"}, "spec": spec}).status == 201
    found = {item["metadata"]["name"]: item["spec"] for item in api.get(SERVICES)["items"]}
    api.stop()
    return found


@needs_etcd
def test_a_store_moves_to_etcd_and_again_where_it_was_interrupted(
    etcd: EtcdCluster, files: Files, tmp_path: Path
) -> None:
    services = filled(tmp_path / "data")
    target = ["--from", f"sqlite:{tmp_path / 'data'}", "--to", f"etcd:{etcd.urls}"]
    place = [*flags(files), "--etcd-prefix", "/moved"]
    moved = run(*place, "migrate", *target)
    assert moved.exit_code == 0, moved.stderr
    assert "0 are different there" in moved.stdout
    before = entries_of(etcd, files, "/moved")
    assert {path.partition("/")[2] for name, path in before if name == "services"} == set(services)

    async def forget() -> None:
        storage = etcd_storage(settings(etcd, files, "/moved"), all_kinds(), lambda: 0.0)
        async with Store(storage, clock=lambda: 0.0) as store:
            for name in ("web-1", "web-3"):
                await store.commit([Change("services", f"default/{name}", None, None)])

    asyncio.run(forget())
    again = run(*place, "migrate", *target)
    assert again.stdout.startswith("2 objects written, ")
    assert {key: without_revision(one) for key, one in entries_of(etcd, files, "/moved").items()} == {
        key: without_revision(one) for key, one in before.items()
    }
    api = Api(ServerThread(tmp_path / "data", etcd=settings(etcd, files, "/moved")))
    try:
        for name, spec in services.items():
            assert api.get(f"{SERVICES}/{name}")["spec"] == spec
        taken = services["web-0"]["ports"][0]["nodePort"]
        body = {"metadata": {"name": "late"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": taken}]}}
        assert api.call("POST", SERVICES, body).status == 422
        assert api.call("DELETE", f"{SERVICES}/web-0").status == 200
    finally:
        api.stop()
    changed = run(*place, "migrate", *target)
    assert changed.exit_code == FAILED
    assert "objects in etcd are not those of the source" in changed.stderr


NOT_MOVED = ("apiservers", "ranges")
"""Who lives, and the node ports, which the first server finds in the Services."""


def without_revision(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": ""}}


@needs_etcd
def test_a_snapshot_of_etcd_is_a_store_and_comes_back_to_etcd(etcd: EtcdCluster, files: Files, tmp_path: Path) -> None:
    api = Api(ServerThread(tmp_path / "one", etcd=settings(etcd, files, "/first")))
    assert api.call("POST", CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}}).status == 201
    place = ["--storage", "etcd", "--etcd-servers", etcd.urls, *flags(files)]
    snapshot = tmp_path / "copy.db"
    taken = run(*place, "--etcd-prefix", "/first", "snapshot", snapshot)
    assert taken.exit_code == 0, taken.stderr
    api.stop()
    rows = sqlite3.connect(snapshot).execute("SELECT count(*) FROM revision WHERE path = 'default/a'")
    assert rows.fetchone() == (1,)
    back = run(*place, "--etcd-prefix", "/second", "restore", snapshot)
    assert back.exit_code == 0, back.stderr
    first, second = (
        {key: without_revision(one) for key, one in entries_of(etcd, files, prefix).items() if key[0] not in NOT_MOVED}
        for prefix in ("/first", "/second")
    )
    first.pop(("leases", "kube-system/nodeagent-controllers"), None)
    second.pop(("leases", "kube-system/nodeagent-controllers"), None)
    assert first == second
    assert run("--data-dir", tmp_path / "here", "restore", snapshot).exit_code == 0
    local = Api(ServerThread(tmp_path / "here"))
    assert local.get(f"{CONFIGMAPS}/a")["data"] == {"x": "1"}
    local.stop()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--storage", "sqlite"], "--storage sqlite needs --data-dir"),
        (["--storage", "etcd"], "needs --etcd-servers"),
        (["--etcd-servers", "http://127.0.0.1:1"], "--etcd-servers is for --storage etcd"),
        (["--storage", "etcd", "--etcd-servers", "127.0.0.1:2379"], "URLs such as"),
        (["--storage", "etcd", "--etcd-servers", "http://a,https://b"], "all of one kind"),
        (["--storage", "etcd", "--etcd-servers", "http://a:port"], "http://a:port"),
        (["--storage", "etcd", "--etcd-servers", "https://a", "--etcd-certfile", "x"], "belong together"),
        (["--storage", "etcd", "--etcd-servers", "http://a", "--etcd-cafile", "x"], "are for https"),
        (["--storage", "etcd", "--etcd-servers", "https://a", "--etcd-cafile", "/nowhere"], "/nowhere"),
        (["--storage", "etcd", "--etcd-servers", "http://a", "--etcd-prefix", "/"], "--etcd-prefix"),
        (["--storage", "etcd", "--etcd-servers", "http://a", "--etcd-prefix", "/a/../b"], "without . and .."),
        (["--storage", "etcd", "--etcd-servers", "http://a", "--etcd-prefix", "/a\n"], "without . and .."),
        (["migrate", "--from", "etcd:x", "--to", "etcd:http://a"], "sqlite:DIR"),
    ],
)
def test_contradictory_options_are_refused(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == UNUSABLE
    assert said in result.stderr


def test_who_needs_no_etcd_does_not_load_what_speaks_to_it() -> None:
    program = "import json, sys, nodeagent.cli.apiserver; print(json.dumps(sorted(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in json.loads(shown.stdout)}
    assert not loaded & {"grpclib", "h2", "hpack"}


@needs_etcd
def test_calls_to_etcd_are_counted_by_what_they_were_for(etcd: EtcdCluster, files: Files, tmp_path: Path) -> None:
    running_server = ServerThread(tmp_path, etcd=settings(etcd, files, "/counted"))
    try:
        api = Api(running_server)
        assert api.call("POST", SECRETS, {"metadata": {"name": "a"}}).status == 201
        assert api.call("DELETE", f"{SECRETS}/a").status == 200
        found = api.call("GET", "/metrics").body.decode()
    finally:
        running_server.stop()
    for operation in ("create", "delete"):
        labels = f'{{group="",operation="{operation}",resource="secrets"}}'
        assert f"etcd_requests_total{labels} 1.0" in found
        assert f"etcd_request_duration_seconds_count{labels} 1.0" in found
    assert 'etcd_requests_total{group="",operation="list",resource=""}' in found
