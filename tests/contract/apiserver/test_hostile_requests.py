"""Requests made to crash the server or to hold it up: each gets its answer, and nobody else waits for it."""

import asyncio
import json
import time
from typing import Any

import pytest

from nodeagent.controlplane.storage.log import Log
from nodeagent.controlplane.storage.records import Change, draft
from nodeagent.controlplane.storage.store import Store
from tests.contract.apiserver.conftest import Api, ServerThread
from tests.contract.apiserver.stalls import measured

LOOP_HELD_SECONDS = 0.05
JSON_PATCH = "application/json-patch+json"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def configmap(name: str, **fields: Any) -> bytes:
    return json.dumps({"metadata": {"name": name}, **fields}).encode()


@pytest.mark.parametrize(
    ("body", "media_type", "code"),
    [
        pytest.param(b"[" * 40_000, "application/yaml", 400, id="deep YAML"),
        pytest.param(b"[" * 40_000, "application/json", 400, id="deep JSON"),
        pytest.param(
            b"a: &a [x]\nb: &b [*a,*a]\nc: [" + b"*b," * 100_000 + b"]", "application/yaml", 400, id="aliases"
        ),
        pytest.param(
            b'{"metadata":{"name":"a"},"data":{' + b'"a":"",' * 200_000 + b'"a":""}}',
            "application/json",
            413,
            id="values",
        ),
        pytest.param(
            b'{"metadata":{"name":"a"},"data":{"x":' + b"1" * 5000 + b"}}", "application/json", 400, id="digits"
        ),
        pytest.param(
            b'{"metadata":{"name":"a","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsV1":'
            + b'{"f:a":' * 400
            + b"{}"
            + b"}" * 400
            + b"}]}}",
            "application/json",
            400,
            id="deep managedFields",
        ),
        pytest.param(
            configmap("a", data={f"!{n}": "" for n in range(20_000)}), "application/json", 422, id="20,000 mistakes"
        ),
        pytest.param(
            configmap("a", **{f"x{n}": 1 for n in range(20_000)}), "application/json", 201, id="20,000 unknown fields"
        ),
        pytest.param(
            b'{"metadata":{"name":"b"},"data":{"z":"1","z":"2",'
            + b",".join(b'"k%d":""' % n for n in range(50_000))
            + b"}}",
            "application/json",
            201,
            id="a duplicate among 50,000",
        ),
    ],
)
def test_a_hostile_body_gets_its_answer_and_nobody_waits(api: Any, body: bytes, media_type: str, code: int) -> None:
    with measured(api.loop) as stall:
        answer = api.call("POST", CONFIGMAPS, raw=body, headers={"Content-Type": media_type})
    assert answer.status == code, answer.body[:300]
    assert len(answer.body) < 200_000 or code == 201
    assert sum(map(len, answer.headers.values())) < 16_384
    assert stall.longest_s < LOOP_HELD_SECONDS
    api.call("DELETE", f"{CONFIGMAPS}/a")
    api.call("DELETE", f"{CONFIGMAPS}/b")


def test_a_patch_that_copies_a_map_into_itself_is_refused(api: Any) -> None:
    assert api.call("POST", CONFIGMAPS, raw=configmap("bomb", data={"a": "x" * 1000})).status == 201
    patch = [{"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(200)]
    with measured(api.loop) as stall:
        answer = api.call("PATCH", f"{CONFIGMAPS}/bomb", patch, {"Content-Type": JSON_PATCH})
    assert (answer.status, "exceeding the limit" in answer.body.decode()) == (422, True)
    assert stall.longest_s < LOOP_HELD_SECONDS
    long = api.call(
        "PATCH", f"{CONFIGMAPS}/bomb", [{"op": "test", "path": "/kind"}] * 10_001, {"Content-Type": JSON_PATCH}
    )
    assert long.status == 413


def test_large_honest_objects_hold_nobody_up(api: Any) -> None:
    endpoints = [{"addresses": [f"192.0.{n // 250}.{n % 250}"], "nodeName": f"n{n}", "zone": "z"} for n in range(1000)]
    body = {"metadata": {"name": "large", "labels": {}}, "addressType": "IPv4", "endpoints": endpoints}
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    with measured(api.loop) as stall:
        made = api.call("POST", path, body)
        assert made.status == 201
        patch = {"metadata": {"annotations": {"a": "b"}}}
        merged = {"Content-Type": "application/merge-patch+json"}
        assert api.call("PATCH", f"{path}/large", patch, merged).status == 200
        assert api.call("PUT", f"{path}/large", made.json).status == 409
    assert stall.longest_s < LOOP_HELD_SECONDS


@pytest.mark.parametrize(
    "query",
    ["limit=" + "9" * 5000, "resourceVersion=" + "9" * 5000, "watch=1&timeoutSeconds=" + "9" * 5000],
    ids=["limit", "version", "seconds"],
)
def test_a_number_of_five_thousand_digits_is_refused(api: Any, query: str) -> None:
    started = time.monotonic()
    answer = api.call("GET", f"{CONFIGMAPS}?{query}")
    assert answer.status == 400, answer.body
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        pytest.param("", "application/json", id="all"),
        pytest.param("?labelSelector=a=b,c!=d", "application/json", id="by label"),
        pytest.param("?fieldSelector=metadata.name!=x", "application/json", id="by field"),
        pytest.param("", "application/json;as=Table;v=v1;g=meta.k8s.io", id="as a table"),
        pytest.param("", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", id="metadata only"),
        pytest.param("?watch=1&timeoutSeconds=1", "application/json", id="a watch from the beginning"),
    ],
)
def test_a_list_of_thousands_holds_nobody_up(many: Any, query: str, accept: str) -> None:
    with measured(many.loop) as stall:
        answer = many.call("GET", f"{CONFIGMAPS}{query}", headers={"Accept": accept})
    assert answer.status == 200
    assert stall.longest_s < LOOP_HELD_SECONDS


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with 5,000 objects, put into its store before it starts."""
    directory = tmp_path_factory.mktemp("many")

    async def fill() -> None:
        async with Store(Log(str(directory / "store.db")), clock=time.time) as store:
            changes = []
            for number in range(5000):
                meta = {"name": f"n{number}", "namespace": "default", "uid": str(number), "resourceVersion": "0"}
                meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
                body = draft({"metadata": {**meta, "labels": {"a": "b"}}, "data": {"x": "y" * 100}})
                changes.append(Change("configmaps", f"default/n{number}", 0, body))
            await store.commit(changes)

    asyncio.run(fill())
    running = ServerThread(directory)
    yield Api(running)
    running.stop()
