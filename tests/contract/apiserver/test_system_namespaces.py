"""What everything else stands on cannot be deleted, and comes back whatever happened to it."""

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.stopwatch import allowed

BACK_SECONDS = 2.0
SERVICE = "/api/v1/namespaces/default/services/kubernetes"


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_a_system_namespace_is_not_deleted(api: Any, name: str) -> None:
    answer = api.call("DELETE", f"/api/v1/namespaces/{name}")
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert answer.json["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    assert api.get(f"/api/v1/namespaces/{name}")["status"]["phase"] == "Active"


def change_namespace(directory: Path, change: Callable[[Any], Any | None]) -> None:
    """Writes the namespace `default` behind the server's back; the Service goes with it."""
    with sqlite3.connect(directory / "store.db") as store:
        query = "SELECT number, collection, path, body FROM revision WHERE path IN ('default', 'default/kubernetes')"
        for number, collection, _, body in store.execute(query).fetchall():
            kept = change(json.loads(body)) if collection == "namespaces" else None
            if kept is None:
                store.execute("DELETE FROM revision WHERE number = ?", (number,))
            else:
                store.execute(
                    "UPDATE revision SET body = ?, checksum = NULL WHERE number = ?",
                    (json.dumps(kept, separators=(",", ":")).encode(), number),
                )
    store.close()


def gone(_: Any) -> None:
    return None


def ending(namespace: Any) -> Any:
    namespace["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    namespace["status"]["phase"] = "Terminating"
    return namespace


@pytest.mark.parametrize("change", [gone, ending])
def test_the_service_comes_back_after_any_change_of_its_namespace(
    start: Callable[..., Any], tmp_path: Path, change: Callable[[Any], Any | None]
) -> None:
    api = start()
    api.until(SERVICE, lambda found: found["kind"] == "Service")
    api.stop()
    change_namespace(tmp_path, change)
    api = start()
    started = time.monotonic()
    api.until(SERVICE, lambda found: found.get("spec", {}).get("clusterIP") == "10.96.0.1")
    assert time.monotonic() - started < allowed(BACK_SECONDS)
    api.until("/api/v1/namespaces/default/endpoints/kubernetes", lambda found: found.get("subsets"))
    assert api.get("/api/v1/namespaces/default")["status"]["phase"] == "Active"
