"""Requests that kube-apiserver refuses, and such that it accepts: so does this server."""

import base64
import json
import time
from typing import Any

import pytest

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
NOTE = {
    "eventTime": "2020-01-01T00:00:00.000000Z",
    "reportingController": "example.com/a",
    "reportingInstance": "a",
    "action": "Look",
    "reason": "Seen",
    "note": "hello",
    "type": "Normal",
    "regarding": {"kind": "Service", "name": "a", "namespace": "default"},
}
CORE = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "like"}, "spec": {"ports": [{"port": 80}], **spec}}


def secret(kind: str, **data: str) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": "like"}, "type": f"kubernetes.io/{kind}", "data": encoded}


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "like"}, "spec": {"containers": [{"name": "a", "image": "b"}], **spec}}


def slice_of(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "like"}, "addressType": "IPv4", "endpoints": [], **more}


@pytest.mark.parametrize(
    ("path", "body", "code", "said"),
    [
        pytest.param(f"{CORE}/services", service(type="NodePort", clusterIP="None"), 422, "may not be set to 'None' for NodePort services", id="headless NodePort"),
        pytest.param(f"{CORE}/services", service(externalIPs=["::ffff:192.0.2.1"]), 422, "spec.externalIPs[0]", id="IPv4 mapped"),
        pytest.param(f"{CORE}/services", {"metadata": {"name": "like"}, "spec": {"type": "ExternalName", "externalName": "Example.com"}}, 422, "spec.externalName", id="upper-case name"),
        pytest.param(f"{CORE}/configmaps", {"metadata": {"name": "like", "finalizers": ["bare"]}}, 422, "neither a standard finalizer name nor is it fully qualified", id="bare finalizer"),
        pytest.param(f"{CORE}/configmaps", {"metadata": {"name": "like"}, "data": {"a": ""}, "binaryData": {"a": ""}}, 422, "duplicate of key present in binaryData", id="key given twice"),
        pytest.param("/api/v1/nodes", {"metadata": {"name": "like"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}}, 422, "taints must be unique by key and effect pair", id="duplicate taints"),
        pytest.param(f"{CORE}/pods", pod(restartPolicy="Sometimes"), 422, 'supported values: "Always", "Never", "OnFailure"', id="restartPolicy"),
        pytest.param(f"{CORE}/secrets", secret("tls", **{"tls.crt": "a"}), 422, "data[tls.key]: Required value", id="TLS secret"),
        pytest.param(f"{CORE}/secrets", secret("dockerconfigjson", **{".dockerconfigjson": "{"}), 422, "<secret contents redacted>", id="docker secret"),
        pytest.param(EVENTS, {"metadata": {"name": "like"}, **{k: v for k, v in NOTE.items() if k != "action"}}, 422, "action: Required value", id="event without action"),
        pytest.param(EVENTS, {"metadata": {"name": "like"}, **NOTE, "note": "x" * 1025}, 422, "can have at most 1024 characters", id="long note"),
        pytest.param(EVENTS, {"metadata": {"name": "like"}, **NOTE, "note": "\u00e9" * 600}, 422, "can have at most 1024 characters", id="long note in bytes"),
        pytest.param(EVENTS, {"metadata": {"name": "like"}, **{k: v for k, v in NOTE.items() if k != "type"}}, 422, "has invalid value", id="event without type"),
        pytest.param(EVENTS, {"metadata": {"name": "like"}, **NOTE, "deprecatedCount": 3}, 422, "count: Invalid value: \"\": needs to be unset", id="event with a count"),
        pytest.param(EVENTS, {"metadata": {"name": "like"}, **NOTE, "series": {"count": 1}}, 422, "series.count: Invalid value: \"\": should be at least 2", id="short series"),
        pytest.param(EVENTS, {"metadata": {"name": "like"}, **NOTE, "regarding": {"namespace": "other"}}, 201, "", id="event about another namespace"),
        pytest.param("/api/v1/namespaces", {"metadata": {"name": "like"}, "spec": {"finalizers": ["bare"]}}, 422, "spec.finalizers[0]", id="bare finalizer of a namespace"),
        pytest.param(f"{CORE}/configmaps", {"metadata": {"name": "like"}, "data": {"..": ""}}, 422, "must not be '..'", id="key that leads up"),
        pytest.param(f"{CORE}/secrets", {"metadata": {"name": "like"}, "data": {"..a": ""}}, 422, "must not start with '..'", id="key that begins by leading up"),
        pytest.param(f"{CORE}/secrets", secret("dockerconfigjson", **{".dockerconfigjson": "null"}), 201, "", id="docker secret of nothing"),
        pytest.param(f"{CORE}/services", service(type="LoadBalancer", loadBalancerSourceRanges=["::ffff:192.0.2.0/120"]), 422, "spec.loadBalancerSourceRanges[0]", id="IPv4 mapped range"),
        pytest.param(f"{CORE}/services", service(type="LoadBalancer", loadBalancerSourceRanges=["192.0.2.0/255.255.255.0"]), 422, "spec.loadBalancerSourceRanges[0]", id="range by a mask"),
        pytest.param(SLICES, slice_of(ports=[{"port": 0}]), 201, "", id="slice port 0"),
        pytest.param(SLICES, slice_of(endpoints=[{"addresses": ["192.0.2.1"], "zone": "zone a"}]), 201, "", id="zone with a blank"),
        pytest.param(f"{CORE}/services?fieldManager={'x' * 129}", service(), 422, "fieldManager: Too long: may not be more than 128 bytes", id="long manager"),
        pytest.param(f"{CORE}/services?dryRun=Some", service(), 422, "dryRun", id="dryRun"),
        pytest.param(f"{CORE}/services?fieldValidation=Perhaps", service(), 422, "fieldValidation", id="fieldValidation"),
    ],
)  # fmt: skip
def test_creations_are_answered_as_by_kubernetes(api: Any, path: str, body: Any, code: int, said: str) -> None:
    answer = api.call("POST", path, body)
    assert (answer.status, said in answer.body.decode().replace('\\"', '"')) == (code, True), answer.body
    if code == 201:
        assert api.call("DELETE", f"{path}/like").status == 200


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("resourceVersionMatch=Exact", 422, "unless resourceVersion is provided"),
        ("resourceVersionMatch=Perhaps&resourceVersion=1", 422, 'supported values: "", "Exact", "NotOlderThan"'),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422, 'forbidden for resourceVersion \\"0\\"'),
        ("sendInitialEvents=true", 422, "sendInitialEvents is forbidden for list"),
        ("watch=1&sendInitialEvents=true", 422, "sendInitialEvents requires setting resourceVersionMatch"),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422, "unless sendInitialEvents is provided"),
        ("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999", 504, "Too large"),
    ],
)
def test_lists_and_watches_are_answered_as_by_kubernetes(api: Any, query: str, code: int, said: str) -> None:
    answer = api.call("GET", f"{CORE}/services?{query}")
    assert (answer.status, said.replace('\\"', '"') in answer.json["message"]) == (code, True), answer.body


def test_a_watch_from_no_version_begins_with_what_is_there(api: Any) -> None:
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    frames = list(api.watch(f"/api/v1/namespaces?{query}"))
    kinds = [frame["type"] for frame in frames]
    first = kinds.index("BOOKMARK")
    assert (first > 0, set(kinds[:first])) == (True, {"ADDED"})
    assert frames[first]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_in_tables_says_its_columns_once_and_its_place_in_a_row(api: Any) -> None:
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    frames = [frame["object"] for frame in api.watch(f"/api/v1/namespaces?{query}", headers=table)]
    columns = [frame["columnDefinitions"] for frame in frames]
    assert columns[0][0]["name"] == "Name"
    assert columns[1:] == [None] * len(columns[1:])
    (end,) = next(frame["rows"] for frame in frames if frame["rows"][0]["cells"][0] is None)
    assert len(end["cells"]) == len(columns[0])
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    ("timeout", "code"), [("3m", 200), ("0s", 200), ("0", 200), ("1h2.5ms", 200), ("5", 400), ("soon", 400)]
)
def test_a_timeout_is_a_duration(api: Any, timeout: str, code: int) -> None:
    for path in ("/version", "/api/v1/namespaces"):
        answer = api.call("GET", f"{path}?timeout={timeout}")
        assert answer.status == code
        assert code == 200 or "invalid timeout specified in the request URL" in answer.json["message"]


@pytest.mark.parametrize(
    ("body", "query", "code", "said"),
    [
        ({"kind": "Service", "apiVersion": "v1"}, "", 400, "cannot be converted to DeleteOptions"),
        ({"propagationPolicy": "Perhaps"}, "", 422, 'supported values: "Background", "Foreground", "Orphan", "nil"'),
        (None, "?propagationPolicy=Perhaps", 422, "propagationPolicy"),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, "", 422, "cannot be both set"),
        ({"dryRun": ["Some"]}, "", 422, "dryRun"),
        (
            {"gracePeriodSeconds": "0"},
            "",
            400,
            "cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds",
        ),
        ({"gracePeriodSeconds": True}, "", 400, "cannot unmarshal bool"),
        ({"propagationPolicy": 3}, "", 400, "cannot unmarshal number"),
        ({"preconditions": {"uid": 7}}, "", 400, "DeleteOptions.preconditions.uid"),
        ({"preconditions": [7]}, "", 400, "DeleteOptions.preconditions"),
        ({"dryRun": "All"}, "", 400, "DeleteOptions.dryRun"),
        ({"dryRun": [1]}, "", 400, "DeleteOptions.dryRun"),
        ({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}, "", 200, ""),
    ],
)
def test_deletions_are_answered_as_by_kubernetes(
    api: Any, demo: str, body: Any, query: str, code: int, said: str
) -> None:
    path = f"/api/v1/namespaces/{demo}/configmaps"
    assert api.call("POST", path, {"metadata": {"name": "like"}}).status == 201
    answer = api.call("DELETE", f"{path}/like{query}", body)
    assert (answer.status, said in answer.body.decode().replace('\\"', '"')) == (code, True), answer.body
    assert (api.call("GET", f"{path}/like").status == 200) is (code != 200)


@pytest.mark.parametrize(
    ("header", "options", "code", "said"),
    [
        pytest.param(b"\x12\x07Service", b"", 400, "cannot be converted to DeleteOptions", id="another kind"),
        pytest.param(b"\x12\x0dDeleteOptions", b"\x22\x07Perhaps", 422, "propagationPolicy", id="unknown policy"),
        pytest.param(b"\x12\x0dDeleteOptions", b"\x22\x0aForeground", 200, "", id="known policy"),
    ],
)
def test_deletions_in_protobuf_are_answered_as_by_kubernetes(
    api: Any, demo: str, header: bytes, options: bytes, code: int, said: str
) -> None:
    path = f"/api/v1/namespaces/{demo}/configmaps"
    assert api.call("POST", path, {"metadata": {"name": "like"}}).status == 201
    body = b"k8s\x00" + b"\x0a" + bytes([len(header)]) + header + b"\x12" + bytes([len(options)]) + options
    answer = api.call(
        "DELETE", f"{path}/like", raw=body, headers={"Content-Type": "application/vnd.kubernetes.protobuf"}
    )
    assert (answer.status, said in answer.body.decode()) == (code, True), answer.body
    assert (api.call("GET", f"{path}/like").status == 200) is (code != 200)


def test_of_an_event_only_its_series_changes(api: Any) -> None:
    assert api.call("POST", EVENTS, {"metadata": {"name": "fixed"}, **NOTE}).status == 201
    moment = "2026-01-01T00:00:00.000000Z"
    for patch, code, said in (
        ({"note": "other"}, 422, "message: Invalid value"),
        ({"series": {"count": 1, "lastObservedTime": moment}}, 422, "should be at least 2"),
        ({"series": {"count": 2, "lastObservedTime": moment}}, 200, ""),
        ({"metadata": {"labels": {"a": "b"}}}, 200, ""),
    ):
        answer = api.call("PATCH", f"{EVENTS}/fixed", patch, {"Content-Type": MERGE})
        assert (answer.status, said in answer.body.decode()) == (code, True), answer.body


def test_a_lease_is_not_taken_from_its_holder_unseen(api: Any) -> None:
    lease = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    held = api.call("POST", LEASES, lease)
    assert held.status == 201
    taken = api.call("PUT", f"{LEASES}/leader", {**lease, "spec": {"holderIdentity": "b"}})
    assert (taken.status, "must be specified for an update" in taken.json["message"]) == (422, True)
    renewed = api.call("PUT", f"{LEASES}/leader", {**held.json, "spec": {"holderIdentity": "a"}})
    assert renewed.status == 200


def test_an_object_that_is_being_deleted_gets_no_more_finalizers(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/configmaps"
    api.call("POST", path, {"metadata": {"name": "held", "finalizers": ["example.com/a"]}})
    api.call("DELETE", f"{path}/held")
    more = {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}
    refused = api.call("PATCH", f"{path}/held", more, {"Content-Type": MERGE})
    assert (refused.status, 'found new finalizers []string{"example.com/b"}' in refused.json["message"]) == (422, True)
    assert api.call("PATCH", f"{path}/held", {"metadata": {"finalizers": None}}, {"Content-Type": MERGE}).status == 200


def test_the_addresses_of_a_pod_say_the_same(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/pods"
    api.call("POST", path, pod())
    for status, addresses in (
        (
            {"podIP": "10.244.0.1", "podIPs": [{"ip": "10.244.0.1"}, {"ip": "fd00:244::1"}]},
            ["10.244.0.1", "fd00:244::1"],
        ),
        ({"podIP": "10.244.0.2"}, ["10.244.0.2"]),
    ):
        changed = api.call("PATCH", f"{path}/like/status", {"status": status}, {"Content-Type": MERGE}).json
        assert [entry["ip"] for entry in changed["status"]["podIPs"]] == addresses
        assert changed["status"]["podIP"] == addresses[0]


def test_who_applies_says_what_and_only_who_applies_may_force(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/configmaps/a"
    for body in ({"apiVersion": "v1", "data": {}}, {"kind": "ConfigMap", "data": {}}):
        answer = api.call("PATCH", f"{path}?fieldManager=me", body, {"Content-Type": APPLY})
        assert (answer.status, "invalid object type" in answer.json["message"]) == (400, True)
    api.call("POST", f"/api/v1/namespaces/{demo}/configmaps", {"metadata": {"name": "a"}})
    forced = api.call("PATCH", f"{path}?force=true", {"data": {"a": "b"}}, {"Content-Type": MERGE})
    assert (forced.status, "may not be specified for non-apply patch" in forced.json["message"]) == (422, True)


def test_who_applies_names_the_object_of_the_path(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/configmaps"
    before = api.call("POST", path, {"metadata": {"name": "applied"}, "data": {"a": "1"}}).json
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}, "data": {"a": "2"}}
    for name in ("applied", "missing"):
        answer = api.call("PATCH", f"{path}/{name}?fieldManager=me&force=true", other, {"Content-Type": APPLY})
        said = f"the name of the object (other) does not match the name on the URL ({name})"
        assert (answer.status, answer.json["message"]) == (400, said)
    assert api.get(f"{path}/applied") == before


def test_an_object_is_not_shown_older_than_asked(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}"
    found = api.call("GET", f"{path}?resourceVersion=999999999999")
    assert (found.status, found.json["kind"]) == (504, "Status")
    latest = api.get("/api/v1/namespaces")["metadata"]["resourceVersion"]
    assert api.get(f"{path}?resourceVersion={latest}")["kind"] == "Namespace"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/apis/apps/v1/namespaces/default/daemonsets/a", "/api/v1/namespaces/default/jobs"])
def test_a_kind_that_is_not_served_is_not_found_with_any_method(api: Any, method: str, path: str) -> None:
    assert api.call(method, path, None if method == "GET" else {}).status == 404


def test_an_event_of_long_ago_stays_for_an_hour(api: Any) -> None:
    assert api.call("POST", EVENTS, {"metadata": {"name": "old"}, **NOTE}).status == 201
    time.sleep(0.3)
    assert api.call("GET", f"{EVENTS}/old").status == 200


def test_warnings(api: Any, demo: str) -> None:
    made = api.call("POST", f"/api/v1/namespaces/{demo}/services", service(externalIPs=["192.0.2.1"]))
    assert "spec.externalIPs is deprecated" in made.headers["Warning"]
    failed = api.call("GET", f"/api/v1/namespaces/{demo}/endpoints/nothing")
    assert (failed.status, "v1 Endpoints is deprecated" in failed.headers["Warning"]) == (404, True)


@pytest.mark.parametrize(
    ("path", "code"), [("/livez/ping", 200), ("/livez/nonexistent", 404), ("/readyz/store", 200), ("/healthz/a/b", 404)]
)
def test_a_check_that_does_not_exist_is_not_found(api: Any, path: str, code: int) -> None:
    assert api.call("GET", path).status == code


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        pytest.param([{"port": 3}], [3, 1, 2], id="a new one comes first"),
        pytest.param([{"port": 2}, {"port": 3}], [1, 2, 3], id="after the one it follows in the patch"),
        pytest.param([{"port": 2}, {"port": 1}], [2, 1], id="in the order of the patch"),
    ],
)
def test_the_order_of_a_strategic_merge(api: Any, demo: str, patch: Any, names: list[int]) -> None:
    path = f"/api/v1/namespaces/{demo}/services"
    ports = [{"name": f"p{port}", "port": port} for port in (1, 2)]
    assert api.call("POST", path, {"metadata": {"name": "web"}, "spec": {"ports": ports}}).status == 201
    named = [{"name": f"p{item['port']}", **item} for item in patch]
    body = json.dumps({"spec": {"ports": named}}).encode()
    answer = api.call("PATCH", f"{path}/web", raw=body, headers={"Content-Type": STRATEGIC})
    assert [port["port"] for port in answer.json["spec"]["ports"]] == names
