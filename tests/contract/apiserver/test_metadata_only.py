"""Clients that look at metadata only (client-go's metadata informers) get metadata only, of everything."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

PARTIAL = "application/json;as={0};g=meta.k8s.io;v=v1,application/json"
ONE = {"Accept": PARTIAL.format("PartialObjectMetadata")}
"""As a metadata client asks that speaks JSON only; what comes in protobuf is in `test_protobuf_answers.py`."""
MANY = {"Accept": PARTIAL.format("PartialObjectMetadataList")}
SERVICE = {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"ports": [{"port": 80}]}}


@pytest.fixture
def services(api: Any, demo: str) -> str:
    path = f"/api/v1/namespaces/{demo}/services"
    assert api.call("POST", path, SERVICE).status == 201
    return path


def is_partial(found: Any) -> bool:
    return bool(
        (found["kind"], found["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        and set(found) == {"kind", "apiVersion", "metadata"}
    )


def test_one_object(api: Any, services: str) -> None:
    whole = api.get(f"{services}/web")
    found = api.call("GET", f"{services}/web", headers=ONE).json
    assert is_partial(found)
    assert found["metadata"] == whole["metadata"]


def test_a_list_with_its_pages(api: Any, services: str) -> None:
    api.call("POST", services, {**SERVICE, "metadata": {"name": "web-2"}})
    found = api.call("GET", f"{services}?limit=1", headers=MANY).json
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert [is_partial(item) for item in found["items"]] == [True]
    assert found["metadata"]["remainingItemCount"] == 1
    rest = api.call("GET", f"{services}?limit=1&continue={found['metadata']['continue']}", headers=MANY).json
    assert [item["metadata"]["name"] for item in found["items"] + rest["items"]] == ["web", "web-2"]


def test_writes_answer_likewise(api: Any, services: str) -> None:
    merge = {**ONE, "Content-Type": "application/merge-patch+json"}
    assert is_partial(api.call("PATCH", f"{services}/web", {"metadata": {"labels": {"c": "d"}}}, merge).json)
    assert is_partial(api.call("DELETE", f"{services}/web", None, ONE).json)


def test_a_deletion_that_answers_with_a_status_still_does(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/configmaps"
    api.call("POST", path, {"metadata": {"name": "brief"}})
    assert api.call("DELETE", f"{path}/brief", None, ONE).json["kind"] == "Status"


def frames(api: Any, path: str) -> Iterator[Any]:
    connection = api.connect()
    connection.request("GET", path, None, {"Authorization": f"Bearer {api.token}", **ONE})
    try:
        yield from map(json.loads, connection.getresponse())
    finally:
        connection.close()


def test_a_watch_of_an_informer(api: Any, services: str) -> None:
    begin = (
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=10"
    )
    watched = frames(api, f"{services}?{begin}&labelSelector=a")
    first, listed = next(watched), next(watched)
    assert (first["type"], listed["type"]) == ("ADDED", "BOOKMARK")
    assert listed["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    api.call(
        "PATCH", f"{services}/web", {"metadata": {"labels": None}}, {"Content-Type": "application/merge-patch+json"}
    )
    left = next(watched)
    assert left["type"] == "DELETED"
    assert left["object"]["metadata"]["labels"] == {"a": "b"}
    assert int(left["object"]["metadata"]["resourceVersion"]) > int(first["object"]["metadata"]["resourceVersion"])
    assert all(is_partial(frame["object"]) for frame in (first, listed, left))


def test_an_object_of_a_kind_with_two_faces(api: Any, demo: str) -> None:
    about = {"kind": "Service", "name": "web", "namespace": demo}
    path = f"namespaces/{demo}/events"
    api.call("POST", f"/api/v1/{path}", {"metadata": {"name": "e"}, "involvedObject": about, "reason": "R"})
    assert is_partial(api.call("GET", f"/apis/events.k8s.io/v1/{path}/e", headers=ONE).json)
    watched = frames(api, f"/apis/events.k8s.io/v1/{path}?watch=1&timeoutSeconds=5")
    assert is_partial(next(watched)["object"])


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        pytest.param("", ONE, id="an object asked of a list"),
        pytest.param("/web", MANY, id="a list asked of an object"),
        pytest.param("?watch=1", MANY, id="lists asked of a watch"),
    ],
)
def test_metadata_is_not_served_as_another_form(api: Any, services: str, path: str, headers: dict[str, str]) -> None:
    answer = api.call("GET", services + path, headers=headers)
    assert (answer.status, answer.json["reason"]) == (406, "NotAcceptable")


def test_plain_json_first_is_plain_json(api: Any, services: str) -> None:
    plain_first = {"Accept": "application/json, application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    assert api.call("GET", f"{services}/web", headers=plain_first).json["kind"] == "Service"
