"""Beside a garbage collector a deletion leaves finalizers that say what becomes of dependents, as kube-apiserver leaves them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.apiserver.conftest import Api, ServerThread
from tests.harness.deletions import CONFIGMAPS, CONTRARY, DELETIONS, FOREGROUND, ORPHAN, Deletion, delete


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that has a garbage collector beside it."""
    api = Api(ServerThread(tmp_path_factory.mktemp("collected"), in_memory=True, has_collector=True))
    yield api
    api.stop()


@pytest.mark.parametrize("one", DELETIONS, ids=lambda one: one.name)
def test_finalizers(collected: Any, one: Deletion) -> None:
    assert delete(calls(collected), one) == one.left


def calls(api: Any) -> Any:
    def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = api.call(method, path, body)
        return answer.status, answer.json

    return call


def test_the_query_says_it_too_and_of_a_collection_as_well(collected: Any) -> None:
    for name in ("one", "two"):
        made = {"metadata": {"name": name, "labels": {"part": "of"}}}
        assert collected.call("POST", CONFIGMAPS, made).status == 201
    assert collected.call("DELETE", f"{CONFIGMAPS}/one?propagationPolicy=Orphan").json["metadata"]["finalizers"] == [
        "orphan"
    ]
    assert collected.call("DELETE", f"{CONFIGMAPS}?labelSelector=part", FOREGROUND).status == 200
    for name in ("one", "two"):
        assert collected.get(f"{CONFIGMAPS}/{name}")["metadata"]["finalizers"] == ["foregroundDeletion"]


def test_an_event_has_no_dependents(collected: Any) -> None:
    events = "/api/v1/namespaces/default/events"
    about = {"kind": "Service", "namespace": "default", "name": "web"}
    assert collected.call("POST", events, {"metadata": {"name": "seen"}, "involvedObject": about}).status == 201
    assert collected.call("DELETE", f"{events}/seen", FOREGROUND).status == 200
    assert collected.call("GET", f"{events}/seen").status == 404


def test_a_pod_that_has_time_left_keeps_what_its_first_deletion_asked_for(collected: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    container = {"name": "c", "image": "i"}
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [container]}}
    assert collected.call("POST", pods, pod).status == 201
    first = collected.call("DELETE", f"{pods}/p", {**FOREGROUND, "gracePeriodSeconds": 20}).json["metadata"]
    assert (first["finalizers"], first["deletionGracePeriodSeconds"]) == (["foregroundDeletion"], 20)
    assert collected.call("DELETE", f"{pods}/p", ORPHAN).json["metadata"] == first
    sooner = collected.call("DELETE", f"{pods}/p", {**ORPHAN, "gracePeriodSeconds": 0}).json["metadata"]
    assert (sooner["finalizers"], sooner["deletionGracePeriodSeconds"]) == (["orphan"], 0)


def test_a_namespace_that_goes_waits_for_no_dependents_of_its_objects(collected: Any) -> None:
    assert collected.call("POST", "/api/v1/namespaces", {"metadata": {"name": "whole"}}).status == 201
    held = {"metadata": {"name": "held", "finalizers": ["foregroundDeletion"]}}
    assert collected.call("POST", "/api/v1/namespaces/whole/configmaps", held).status == 201
    assert collected.call("DELETE", "/api/v1/namespaces/whole").status == 200
    collected.until("/api/v1/namespaces/whole", lambda found: found.get("code") == 404)


def test_both_finalizers_at_once_are_refused(collected: Any) -> None:
    both = {"metadata": {"name": "both", "finalizers": ["orphan", "foregroundDeletion"]}}
    answer = collected.call("POST", CONFIGMAPS, both)
    assert answer.status == 422
    assert CONTRARY in answer.json["message"]


def test_a_deletion_counts_as_a_change_of_what_is_wanted(collected: Any) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    assert collected.call("POST", path, {"metadata": {"name": "d"}, "spec": spec}).json["metadata"]["generation"] == 1
    generations = [
        collected.call("DELETE", f"{path}/d", body).json["metadata"]["generation"] for body in (FOREGROUND, ORPHAN)
    ]
    assert generations == [2, 2]


def test_without_a_collector_nothing_waits_for_one(api: Any) -> None:
    """Nobody would remove the finalizers."""
    for number, asked in enumerate((ORPHAN, FOREGROUND, {})):
        assert api.call("POST", CONFIGMAPS, {"metadata": {"name": f"alone-{number}"}}).status == 201
        assert api.call("DELETE", f"{CONFIGMAPS}/alone-{number}", asked).status == 200
        assert api.call("GET", f"{CONFIGMAPS}/alone-{number}").status == 404
