"""Protobuf in both directions, for clients that speak nothing else."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.apiserver.api.protobuf_answers import ProtobufAnswers
from nodeagent.apiserver.api.replies import Reply
from nodeagent.apiserver.machinery.request_worker import Worker
from nodeagent.apiserver.machinery.schema.protobuf import MEDIA_TYPE, read_object
from nodeagent.apiserver.machinery.schema.protobuf_writing import write_object
from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.shared import ANSWERS
from nodeagent.kinds.description.status import ApiError

RECORDED = json.loads((Path(__file__).parents[2] / "unit/apiserver/protobuf_objects.json").read_text())
CATALOG = all_kinds()
ONLY = {"Accept": MEDIA_TYPE}
PLACES = {
    "v1 Pod": "/api/v1/namespaces/{}/pods",
    "v1 Node": "/api/v1/nodes",
    "v1 Secret": "/api/v1/namespaces/{}/secrets",
    "coordination.k8s.io/v1 Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "discovery.k8s.io/v1 EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "events.k8s.io/v1 Event": "/apis/events.k8s.io/v1/namespaces/{}/events",
}


def row(name: str) -> Any:
    return next(row for row in CATALOG.rows if f"{row.group_version} {row.kind}" == name)


def read(name: str, body: bytes) -> Any:
    head = dict(zip(("apiVersion", "kind"), name.split(), strict=True))
    return head | normalise(row(name).struct, read_object(row(name).struct, body))


def sent(name: str, namespace: str) -> bytes:
    """The recorded object as a new one, in protobuf."""
    made = json.loads(json.dumps(RECORDED[name]["json"]))
    labels = made["metadata"].get("labels") or {}
    for condition in made.get("status", {}).get("conditions", []):
        condition["lastHeartbeatTime"] = None  # else the controller of nodes writes, too
    made["metadata"] = {"name": f"{made['metadata']['name']}-{namespace}", "labels": labels}
    if row(name).namespaced:
        made["metadata"]["namespace"] = namespace
    return write_object({row(name).kind: row(name).struct}, json.dumps(made).encode())


@pytest.mark.parametrize("name", PLACES)
def test_an_object_is_created_and_read_in_protobuf(api: Any, demo: str, name: str) -> None:
    path = PLACES[name].format(demo)
    made = api.call("POST", path, raw=sent(name, demo), headers={"Content-Type": MEDIA_TYPE, **ONLY})
    assert (made.status, made.headers["Content-Type"]) == (201, MEDIA_TYPE)
    created = read(name, made.body)
    place = f"{path}/{created['metadata']['name']}"
    assert created["metadata"]["uid"] == api.get(place)["metadata"]["uid"]
    if name == "v1 Pod":
        assert created["spec"]["volumes"] == RECORDED[name]["json"]["spec"]["volumes"]
        assert created["spec"]["containers"] == RECORDED[name]["json"]["spec"]["containers"]
    put = api.call("PUT", place, raw=made.body, headers={"Content-Type": MEDIA_TYPE})
    assert put.status == 200, put.body
    assert read(name, api.call("GET", place, headers=ONLY).body) == api.get(place)
    assert api.call("DELETE", f"{place}?gracePeriodSeconds=0", headers=ONLY).headers["Content-Type"] == MEDIA_TYPE


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that has messages and texts only."""
    position = 0
    while position < len(data):
        number, length, shift = data[position] >> 3, 0, 0
        while True:
            position += 1
            length |= (data[position] & 0x7F) << shift
            shift += 7
            if data[position] < 0x80:
                break
        position += 1
        yield number, data[position : position + length]
        position += length


def test_a_list_its_pages_and_its_metadata(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/secrets"
    for name in ("a", "b"):
        api.call("POST", path, {"metadata": {"name": name}, "data": {"k": "AAEC"}})
    envelope = dict(fields(api.call("GET", path, headers=ONLY).body[4:]))
    assert dict(fields(envelope[1])) == {1: b"v1", 2: b"SecretList"}
    parts = list(fields(envelope[2]))
    assert [number for number, _ in parts] == [1, 2, 2]
    assert all(b"\x0a\x01k\x12\x03\x00\x01\x02" in item for number, item in parts if number == 2)
    partial = {"Accept": f"{MEDIA_TYPE};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    shown = api.call("GET", f"{path}?limit=1", headers=partial)
    assert b"PartialObjectMetadataList" in shown.body
    assert b"\x00\x01\x02" not in shown.body


METADATA = f"{MEDIA_TYPE};as={{0}};g=meta.k8s.io;v=v1,application/json;as={{0}};g=meta.k8s.io;v=v1,application/json"
"""What client-go's metadata client asks for."""


def test_metadata_only_comes_in_protobuf_where_it_is_named_first(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/secrets"
    api.call("POST", path, {"metadata": {"name": "a"}, "data": {"k": "AAEC"}})
    meta = api.get(f"{path}/a")["metadata"]
    struct = ANSWERS["PartialObjectMetadata"]
    one = {"Accept": METADATA.format("PartialObjectMetadata")}
    got = api.call("GET", f"{path}/a", headers=one)
    assert got.headers["Content-Type"] == MEDIA_TYPE
    assert normalise(struct, read_object(struct, got.body))["metadata"] == meta
    many = api.call("GET", path, headers={"Accept": METADATA.format("PartialObjectMetadataList")})
    envelope = dict(fields(many.body[4:]))
    assert dict(fields(envelope[1])) == {1: b"meta.k8s.io/v1", 2: b"PartialObjectMetadataList"}
    assert [number for number, _ in fields(envelope[2])] == [1, 2]
    watched = api.call("GET", f"{path}?watch=1&timeoutSeconds=1", headers=one)
    assert watched.headers["Content-Type"] == f"{MEDIA_TYPE};stream=watch"
    event = dict(fields(watched.body[4:]))
    shown = dict(fields(event[2]))[1]
    assert normalise(struct, read_object(struct, shown))["metadata"] == meta
    refused = api.call("GET", f"{path}/missing", headers=one)
    assert (refused.status, refused.headers["Content-Type"]) == (404, MEDIA_TYPE)


def test_metadata_that_is_too_long_for_protobuf_comes_in_json(start: Any) -> None:
    api = start(in_memory=True)
    path = "/api/v1/namespaces/default/configmaps"
    long = {"note": "x" * 250_000}
    for number in range(70):
        made = api.call("POST", path, {"metadata": {"name": f"long-{number}", "annotations": long}})
        assert made.status == 201
    accept = METADATA.format("PartialObjectMetadataList")
    found = api.call("GET", path, headers={"Accept": accept})
    assert (found.status, found.headers["Content-Type"]) == (200, "application/json")
    assert (found.json["kind"], len(found.json["items"])) == ("PartialObjectMetadataList", 71)
    page = api.call("GET", f"{path}?limit=10", headers={"Accept": accept})
    assert (page.status, page.headers["Content-Type"]) == (200, MEDIA_TYPE)


def test_a_watch_is_sent_in_frames(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/secrets"
    api.call("POST", path, {"metadata": {"name": "first"}, "data": {"k": "A" * 40_000}})
    answer = api.call("GET", f"{path}?watch=1&timeoutSeconds=1", headers={"Accept": f"{MEDIA_TYPE};stream=watch"})
    assert answer.headers["Content-Type"] == f"{MEDIA_TYPE};stream=watch"
    length = int.from_bytes(answer.body[:4], "big")
    event = dict(fields(answer.body[4 : 4 + length]))
    assert event[1] == b"ADDED"
    shown = read("v1 Secret", dict(fields(event[2]))[1])
    assert shown == api.get(f"{path}/first")
    assert len(answer.body) == 4 + length


def test_a_refusal_is_sent_in_protobuf(api: Any) -> None:
    answer = api.call("GET", "/api/v1/namespaces/missing", headers=ONLY)
    assert (answer.status, answer.headers["Content-Type"]) == (404, MEDIA_TYPE)
    assert b'namespaces "missing" not found' in answer.body


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param(f"{MEDIA_TYPE},application/json", "application/json", id="both"),
        pytest.param(f"{MEDIA_TYPE}, */*", "application/json", id="as client-go asks by default"),
        pytest.param(f"{MEDIA_TYPE};as=Table;g=meta.k8s.io;v=v1", 406, id="a table"),
        pytest.param("text/html", 406, id="neither"),
    ],
)
def test_the_form_of_an_answer_to_a_client_that_accepts_several(api: Any, accept: str, expected: str | int) -> None:
    answer = api.call("GET", "/api/v1/namespaces", headers={"Accept": accept})
    assert expected in (answer.status, answer.headers["Content-Type"])


def test_a_list_that_is_too_long_is_refused_before_it_is_held() -> None:
    taken = 0

    def pieces() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * (1 << 20)

    async def main() -> None:
        with Worker() as worker:
            await ProtobufAnswers(worker).answer(Reply(chunks=pieces(), chunked_bytes=None), row("v1 Pod"))

    with pytest.raises(ApiError, match="in pages"):
        asyncio.run(main())
    assert taken == 17
