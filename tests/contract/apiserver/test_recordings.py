"""What Kubernetes 1.36 answered, this server answers: status, headers and body, field by field and in the same order.

The tests of this module run in order on one store, as the exchanges were recorded.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

Recorded = Callable[[str], Any]
Comparable = Callable[[Any], Any]


def replay(api: Any, exchange: Any, *, path: str | None = None, body: Any = None) -> Any:
    request = exchange["request"]
    sent = request["body"] if body is None else body
    headers = {name: value for name, value in request["headers"].items() if name != "Accept"}
    return api.call(
        request["method"], path or request["path"], sent, {"Accept": request["headers"]["Accept"], **headers}
    )


def assert_same(answer: Any, exchange: Any, comparable: Comparable) -> None:
    expected = exchange["response"]
    assert answer.status == expected["status"], answer.body
    for name, value in expected["headers"].items():
        assert answer.headers.get(name) == value
    if isinstance(expected["body"], str):
        assert answer.body.decode() == expected["body"]
        return
    # As text, so that the order of fields counts too.
    assert json.dumps(comparable(answer.json), indent=1) == json.dumps(comparable(expected["body"]), indent=1)


@pytest.mark.parametrize(
    "name",
    [
        "namespace-create",
        "service-create",
        "service-get",
        "service-create-duplicate-409",
        "service-create-invalid-422",
        "service-create-clusterip-out-of-range-422",
        "service-create-headless",
        "service-create-nodeport",
        "service-create-loadbalancer",
        "service-create-externalname",
        "service-create-affinity",
        "service-create-dualstack",
        "service-missing-404",
        "bad-json-400",
        "method-405",
        "unknown-path-404",
        "pod-create",
    ],
)
def test_a_request_that_depends_on_nothing(api: Any, recorded: Recorded, comparable: Comparable, name: str) -> None:
    exchange = recorded(name)
    assert_same(replay(api, exchange), exchange, comparable)


def test_a_taken_address_is_refused(api: Any, recorded: Recorded, comparable: Comparable) -> None:
    exchange = recorded("service-create-clusterip-taken-422")
    taken = api.get("/api/v1/namespaces/demo/services/web")["spec"]["clusterIP"]
    body = {**exchange["request"]["body"], "spec": {**exchange["request"]["body"]["spec"], "clusterIP": taken}}
    assert_same(replay(api, exchange, body=body), exchange, comparable)


def test_an_update_of_the_latest_version_succeeds_and_of_an_older_one_conflicts(
    api: Any, recorded: Recorded, comparable: Comparable
) -> None:
    live = api.get("/api/v1/namespaces/demo/services/web")
    for name in ("service-update", "service-update-conflict-409"):
        exchange = recorded(name)
        sent = {**live, "metadata": {**live["metadata"], "labels": exchange["request"]["body"]["metadata"]["labels"]}}
        assert_same(replay(api, exchange, body=sent), exchange, comparable)


@pytest.mark.parametrize(
    "name", ["service-patch-merge", "service-patch-strategic", "service-patch-json", "service-apply-ssa"]
)
def test_a_patch(api: Any, recorded: Recorded, comparable: Comparable, name: str) -> None:
    exchange = recorded(name)
    assert_same(replay(api, exchange), exchange, comparable)


@pytest.mark.parametrize(
    "name",
    [
        "service-list",
        "service-list-rv0",
        "service-list-labels",
        "service-list-fields",
        "service-list-limit-2",
        "service-list-bad-continue-400",
    ],
)
def test_a_list(api: Any, recorded: Recorded, comparable: Comparable, name: str) -> None:
    exchange = recorded(name)
    assert_same(replay(api, exchange), exchange, comparable)


def test_a_table(api: Any, recorded: Recorded, comparable: Comparable) -> None:
    exchange = recorded("service-list-table")
    answer = replay(api, exchange)
    table = answer.json
    ports = r"80:30000/TCP"
    for shown in (table, exchange["response"]["body"]):
        for row in shown["rows"]:
            row["cells"][5] = "<age>"
            if row["cells"][4].startswith("80:"):
                row["cells"][4] = ports
    assert json.dumps(comparable(table)) == json.dumps(comparable(exchange["response"]["body"]))


def test_a_continued_list_says_what_was_there_when_it_began(
    api: Any, recorded: Recorded, comparable: Comparable
) -> None:
    first = api.get("/api/v1/namespaces/demo/services?limit=2")
    late = {"metadata": {"name": "extra"}, "spec": {"ports": [{"port": 80}]}}
    assert api.call("POST", "/api/v1/namespaces/demo/services", late).status == 201
    exchange = recorded("service-list-continue")
    path = f"/api/v1/namespaces/demo/services?limit=2&continue={first['metadata']['continue']}"
    answer = replay(api, exchange, path=path)
    assert answer.json["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert_same(answer, exchange, comparable)
    assert api.call("DELETE", "/api/v1/namespaces/demo/services/extra").status == 200


def test_a_list_of_a_future_revision_must_wait(api: Any, recorded: Recorded) -> None:
    exchange = recorded("service-list-future-rv-504")
    answer = replay(api, exchange)
    expected = exchange["response"]["body"]
    current = api.get("/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"]
    assert answer.status == 504
    assert answer.headers["Retry-After"] == "1"
    assert answer.json == {**expected, "message": f"Timeout: Too large resource version: 999999999, current: {current}"}


def test_the_kubernetes_objects(api: Any, recorded: Recorded, comparable: Comparable) -> None:
    api.until("/api/v1/namespaces/default/endpoints/kubernetes", lambda found: found.get("subsets"))
    for name in ("kubernetes-service", "kubernetes-endpoints", "kubernetes-endpointslice"):
        exchange = recorded(name)
        answer = replay(api, exchange)
        text = json.dumps(comparable(exchange["response"]["body"])).replace("6443", str(api.server.port))
        shown = answer.json
        expected = json.loads(text)
        if name == "kubernetes-endpointslice":
            # The slice grew its endpoint a moment after it was made; upstream writes it in one.
            shown["metadata"]["generation"] = expected["metadata"]["generation"]
        assert comparable(shown) == expected
        for header, value in exchange["response"]["headers"].items():
            assert answer.headers.get(header) == value


def test_the_service_range_and_its_addresses(api: Any, recorded: Recorded, comparable: Comparable) -> None:
    exchange = recorded("servicecidrs")
    assert_same(replay(api, exchange), exchange, comparable)
    exchange = recorded("ipaddresses")
    answer = replay(api, exchange).json
    shape = comparable(exchange["response"]["body"]["items"][0])
    for item in answer["items"]:
        assert {**comparable(item), "spec": 0} == {**shape, "spec": 0} or item["metadata"]["name"] == "10.96.0.1"
    holders = {item["metadata"]["name"] for item in api.get("/apis/networking.k8s.io/v1/ipaddresses")["items"]}
    services = api.get("/api/v1/services")["items"]
    assert holders == {ip for s in services for ip in s["spec"].get("clusterIPs", []) if ip != "None"}


def test_a_watch_tells_what_happens_and_bookmarks_before_it_ends(
    api: Any, recorded: Recorded, comparable: Comparable
) -> None:
    exchange = recorded("service-watch")
    since = api.get("/api/v1/namespaces/demo/services")["metadata"]["resourceVersion"]
    events = exchange["response"]["events"]
    created = {"metadata": {"name": "w1"}, "spec": events[0]["object"]["spec"]}
    created["spec"] = {
        "selector": {"app": "w1"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
    }
    api.call("POST", "/api/v1/namespaces/demo/services", created)
    merge = {"Content-Type": "application/merge-patch+json"}
    api.call("PATCH", "/api/v1/namespaces/demo/services/w1", {"metadata": {"labels": {"z": "1"}}}, merge)
    deleted = recorded("service-delete")
    assert_same(replay(api, deleted), deleted, comparable)
    path = f"/api/v1/namespaces/demo/services?watch=1&resourceVersion={since}&allowWatchBookmarks=true&timeoutSeconds=1"
    seen = list(api.watch(path))
    assert [event["type"] for event in seen[:3]] == ["ADDED", "MODIFIED", "DELETED"]
    assert [comparable(event) for event in seen[:3]] == [comparable(event) for event in events[:3]]
    assert comparable(seen[-1]) == comparable(events[-1])
    without = list(api.watch(path.replace("&allowWatchBookmarks=true", "")))
    assert [event["type"] for event in without] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_watch_begins_with_a_list_when_asked(api: Any, recorded: Recorded, comparable: Comparable) -> None:
    exchange = recorded("service-watchlist-initial-events")
    seen = list(api.watch(exchange["request"]["path"].replace("timeoutSeconds=4", "timeoutSeconds=1")))
    expected = exchange["response"]["events"]
    assert json.dumps(comparable(seen[: len(expected)])) == json.dumps(comparable(expected))


def test_the_version_and_discovery(api: Any, recorded: Recorded) -> None:
    version, expected = api.get("/version"), recorded("version")["response"]["body"]
    assert {name: version[name] for name in ("major", "minor")} == {"major": "1", "minor": "36"}
    assert version.keys() == expected.keys()
    assert api.get("/api")["versions"] == recorded("api")["response"]["body"]["versions"]
    for name in ("api-v1", "apis-discovery-v1"):
        exchange = recorded(name)
        theirs = {entry["name"]: entry for entry in exchange["response"]["body"]["resources"]}
        ours = api.get(exchange["request"]["path"])
        assert {entry["name"]: entry for entry in ours["resources"]} == {
            entry["name"]: theirs[entry["name"]] for entry in ours["resources"]
        }
        assert {**ours, "resources": []} == {**exchange["response"]["body"], "resources": []}


def test_aggregated_discovery(api: Any, recorded: Recorded) -> None:
    exchange = recorded("aggregated-discovery")
    answer = replay(api, exchange)
    assert answer.headers["Content-Type"] == exchange["response"]["headers"]["Content-Type"]
    theirs = {group["metadata"]["name"]: group for group in exchange["response"]["body"]["items"]}
    for group in answer.json["items"]:
        (version,) = group["versions"]
        (recorded_version,) = theirs[group["metadata"]["name"]]["versions"]
        resources = {entry["resource"]: entry for entry in recorded_version["resources"]}
        for entry in version["resources"]:
            expected = resources[entry["resource"]]
            parts = [part for part in expected.get("subresources", []) if part["subresource"] not in LACKING]
            assert entry == expected | ({"subresources": parts} if parts else {})


LACKING = ("scale",)
"""Parts that are not there: nothing runs a Deployment."""
AGGREGATED = "application/json;as=APIGroupDiscoveryList;v={};g=apidiscovery.k8s.io"


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_an_unchanged_document_is_sent_once_to_a_client_that_keeps_it(api: Any, path: str) -> None:
    first = api.call("GET", path, headers={"Accept": AGGREGATED.format("v2")})
    assert (first.headers["Vary"], first.headers["Cache-Control"]) == ("Accept", "public")
    known = {"Accept": AGGREGATED.format("v2"), "If-None-Match": first.headers["ETag"]}
    again = api.call("GET", path, headers=known)
    assert (again.status, again.body, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    assert api.call("GET", path, headers={**known, "If-None-Match": '"other"'}).json == first.json


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param(AGGREGATED.format("v2beta1"), 406, id="a version that is gone"),
        pytest.param(f"{AGGREGATED.format('v2beta1')},application/json", "APIGroupList", id="or plain"),
        pytest.param(f"{AGGREGATED.format('v2')};profile=nopeer", "APIGroupDiscoveryList", id="with a profile"),
        pytest.param("application/json;as=APIGroupDiscoveryList;v=v2", 406, id="without its group"),
        pytest.param(f"application/json,{AGGREGATED.format('v2')}", "APIGroupDiscoveryList", id="in any order"),
        pytest.param("*/*", "APIGroupList", id="anything"),
        pytest.param("text/html", 406, id="no JSON"),
    ],
)
def test_forms_of_discovery(api: Any, accept: str, expected: int | str) -> None:
    answer = api.call("GET", "/apis", headers={"Accept": accept})
    assert expected == (answer.status if answer.status == 406 else answer.json["kind"])


def test_without_credentials_there_is_no_answer(api: Any, recorded: Recorded) -> None:
    exchange = recorded("unauthorized-401")
    for token in (None, "wrong"):
        answer = api.call("GET", exchange["request"]["path"], token=token)
        assert (answer.status, answer.json) == (401, exchange["response"]["body"])


def test_the_kubernetes_service_comes_back_with_its_address(
    api: Any, recorded: Recorded, comparable: Comparable
) -> None:
    exchange = recorded("kubernetes-service-delete")
    old = api.get("/api/v1/namespaces/default/services/kubernetes")
    answer = replay(api, exchange)
    text = json.dumps(comparable(exchange["response"]["body"])).replace("6443", str(api.server.port))
    assert comparable(answer.json) == json.loads(text)
    path = "/api/v1/namespaces/default/services?watch=1&fieldSelector=metadata.name%3Dkubernetes&timeoutSeconds=2"
    since = int(answer.json["metadata"]["resourceVersion"]) - 1
    first, second = list(api.watch(f"{path}&resourceVersion={since}"))[:2]
    assert (first["type"], second["type"]) == ("DELETED", "ADDED")
    assert second["object"]["spec"] == old["spec"]
    assert second["object"]["metadata"]["uid"] != old["metadata"]["uid"]
