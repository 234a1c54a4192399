"""What a storage kept of a run, read from the storage itself."""

import base64
import json
import os
import sqlite3
import subprocess
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.harness.etcd import PROGRAM, EtcdCluster
from tests.harness.history.records import Fact, Value

_IN_ETCD = {"configmaps": "configmaps", "services": "services/specs"}
_DELETED = 1
PUT, PATCHED = "put", "patched"
"""Annotations: what those wrote who replace an object, and those who patch it."""


def value_of(document: dict[str, Any]) -> Value:
    annotations = document["metadata"].get("annotations") or {}
    return (annotations.get(PUT, ""), annotations.get(PATCHED, ""))


def fact_of(revision: int, name: str, document: dict[str, Any] | None) -> Fact:
    """None: deleted."""
    if document is None:
        return Fact(revision, name, None)
    spec = document.get("spec") or {}
    claims = [
        *(spec.get("clusterIPs") or []),
        *(port["nodePort"] for port in spec.get("ports") or [] if "nodePort" in port),
    ]
    return Fact(revision, name, value_of(document), document["metadata"]["uid"], frozenset(map(str, claims)))


def kept_in_sqlite(store: Path, namespace: str) -> dict[str, list[Fact]]:
    """Of each collection, every revision of objects of the namespace; nothing may have been compacted."""
    found: dict[str, list[Fact]] = defaultdict(list)
    with closing(sqlite3.connect(f"{store.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        (floor,) = connection.execute("SELECT value FROM fact WHERE name = 'floor'").fetchone()
        assert floor == 0, f"the history up to {floor} is gone"
        rows = connection.execute("SELECT number, collection, path, body, deleted FROM revision ORDER BY number")
        for number, collection, path, body, deleted in rows:
            place, _, name = path.rpartition("/")
            if place == namespace:
                found[collection].append(fact_of(number, name, None if deleted else json.loads(body)))
    return found


def kept_in_etcd(cluster: EtcdCluster, namespace: str) -> dict[str, list[Fact]]:
    """The same from a watch of etcd itself, from the first revision to a key that marks the end."""
    end = base64.b64encode(b"/end").decode()
    assert cluster.leader().call("/v3/kv/put", {"key": end, "value": end})
    found: dict[str, list[Fact]] = defaultdict(list)
    command = [
        str(PROGRAM.with_name("etcdctl")),
        "--endpoints",
        cluster.urls,
        "watch",
        "--prefix",
        "/",
        "--rev=1",
        "-wjson",
    ]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as watch:
        assert watch.stdout is not None
        try:
            for line in watch.stdout:
                for event in json.loads(line).get("Events") or []:
                    if event["kv"]["key"] == end:
                        return found
                    _note(found, event, namespace)
        finally:
            watch.kill()
    raise AssertionError("the watch ended before the end")


def _note(found: dict[str, list[Fact]], event: dict[str, Any], namespace: str) -> None:
    key = base64.b64decode(event["kv"]["key"]).decode()
    for collection, place in _IN_ETCD.items():
        if key.startswith(f"/registry/{place}/{namespace}/"):
            value = event["kv"].get("value") if event.get("type") != _DELETED else None
            document = json.loads(base64.b64decode(value)) if value is not None else None
            found[collection].append(fact_of(event["kv"]["mod_revision"], key.rpartition("/")[2], document))
