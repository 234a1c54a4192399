"""A server whose store is full: it says so, deletes on request, and then goes on."""

import threading
from collections.abc import Callable
from typing import Any

CONFIGMAPS = "/api/v1/namespaces/demo/configmaps"


def test_a_full_store_is_reported_freed_and_used_again(start: Callable[..., Any]) -> None:
    api = start(limit_bytes=2 * 1024 * 1024)
    assert api.call("GET", "/readyz").status == 200
    assert api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "demo"}}).status == 201
    number = 0
    while True:
        body = {"metadata": {"name": f"n{number}", "finalizers": ["example.com/a"] if number % 2 else []}}
        answer = api.call("POST", CONFIGMAPS, {**body, "data": {"x": "x" * 50_000}})
        if answer.status != 201:
            break
        number += 1
    assert answer.status == 507
    ready = api.call("GET", "/readyz")
    assert (ready.status, b"[-]store-space failed" in ready.body) == (500, True)
    assert api.call("GET", "/livez").status == 200
    merge = {"Content-Type": "application/merge-patch+json"}
    larger = api.call("PATCH", f"{CONFIGMAPS}/n0", {"data": {"y": "y"}}, merge)
    assert larger.status == 507
    assert api.call("PATCH", f"{CONFIGMAPS}/n0", {"data": {"x": None}}, merge).status == 200
    assert api.call("DELETE", f"{CONFIGMAPS}/n1").status == 200
    assert api.call("PATCH", f"{CONFIGMAPS}/n1", {"metadata": {"finalizers": None}}, merge).status == 200
    assert api.call("DELETE", "/api/v1/namespaces/demo").status == 200
    for other in range(3, number, 2):
        freed = _call_until_room(api, "PATCH", f"{CONFIGMAPS}/n{other}", {"metadata": {"finalizers": None}}, merge)
        assert freed.status in (200, 404)
    api.until("/api/v1/namespaces/demo", lambda found: found["kind"] == "Status")
    while api.call("GET", "/readyz").status != 200:
        threading.Event().wait(0.05)
    assert _call_until_room(api, "POST", "/api/v1/namespaces", {"metadata": {"name": "demo"}}).status == 201
    large = {"metadata": {"name": "a"}, "data": {"x": "x" * 50_000}}
    assert _call_until_room(api, "POST", CONFIGMAPS, large).status == 201


def _call_until_room(api: Any, *request: Any) -> Any:
    """Calls until the answer is not 507. What is deleted takes space until the history has moved on, a second or two
    later; until then the store is full again after any write."""
    for _ in range(500):
        answer = api.call(*request)
        if answer.status != 507:
            break
        threading.Event().wait(0.05)
    return answer
