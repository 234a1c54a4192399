"""What each verb promises beyond the recordings."""

import threading
from typing import Any

import pytest

SERVICE: Any = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}

PROTOBUF_SCHEMA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def services(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/services"


def test_a_body_over_three_mebibytes_is_refused_and_others_are_not_disturbed(api: Any, demo: str) -> None:
    big = b'{"metadata":{"name":"big","annotations":{"a":"' + b"x" * (3 << 20) + b'"}}}'
    answer = api.call("POST", services(demo), raw=big)
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert api.call("POST", services(demo), SERVICE).status == 201


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"metadata": 3}', b'{"spec":{"ports":"x"}}', b"null"]
)
def test_a_body_that_makes_no_sense_is_a_bad_request(api: Any, demo: str, raw: bytes) -> None:
    answer = api.call("POST", services(demo), raw=raw)
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


def test_unknown_and_repeated_fields_are_reported_as_requested(api: Any, demo: str) -> None:
    body = b'{"metadata":{"name":"odd"},"spec":{"colour":"red","ports":[{"port":80}],"ports":[{"port":81}]}}'
    strict = api.call("POST", f"{services(demo)}?fieldValidation=Strict", raw=body)
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.colour", duplicate field "spec.ports"' in strict.json["message"]
    warned = api.call("POST", f"{services(demo)}?fieldValidation=Warn&dryRun=All", raw=body)
    assert 'unknown field \\"spec.colour\\"' in warned.headers["Warning"]
    ignored = api.call("POST", f"{services(demo)}?fieldValidation=Ignore", raw=body)
    assert ignored.status == 201
    assert "Warning" not in ignored.headers
    assert "colour" not in ignored.json["spec"]


def test_a_dry_run_leaves_nothing_behind(api: Any, demo: str) -> None:
    answer = api.call("POST", f"{services(demo)}?dryRun=All", SERVICE)
    assert answer.status == 201
    address = answer.json["spec"]["clusterIP"]
    assert "resourceVersion" not in answer.json["metadata"]
    assert api.call("GET", f"{services(demo)}/web").status == 404
    assert api.call("GET", f"/apis/networking.k8s.io/v1/ipaddresses/{address}").status == 404
    created = api.call("POST", services(demo), SERVICE).json
    patched = api.call("PATCH", f"{services(demo)}/web?dryRun=All", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    assert patched.json["metadata"]["labels"] == {"a": "b"}
    assert api.call("DELETE", f"{services(demo)}/web?dryRun=All").status == 200
    assert api.get(f"{services(demo)}/web") == created


def test_generated_names_differ(api: Any, demo: str) -> None:
    body = {**SERVICE, "metadata": {"generateName": "web-"}}
    names = {api.call("POST", services(demo), body).json["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("web-") and len(name) == 9 for name in names)


def test_a_deletion_can_insist_on_what_it_deletes(api: Any, demo: str) -> None:
    created = api.call("POST", services(demo), SERVICE).json
    for conditions in ({"uid": "somebody-else"}, {"resourceVersion": "1"}):
        answer = api.call("DELETE", f"{services(demo)}/web", {"preconditions": conditions})
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    exact = {"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]}
    assert api.call("DELETE", f"{services(demo)}/web", {"preconditions": exact}).status == 200


def test_deletecollection_removes_what_is_selected(api: Any, demo: str) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        api.call("POST", services(demo), {**SERVICE, "metadata": {"name": name, "labels": {"l": label}}})
    assert api.call("DELETE", f"{services(demo)}?labelSelector=l=x").status == 200
    assert [item["metadata"]["name"] for item in api.get(services(demo))["items"]] == ["c"]


def test_a_finalizer_holds_an_object_until_it_is_removed(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/configmaps"
    api.call("POST", path, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})
    marked = api.call("DELETE", f"{path}/held").json
    assert marked["metadata"]["deletionTimestamp"]
    assert api.call("PATCH", f"{path}/held", {"metadata": {"finalizers": None}}, MERGE).status == 200
    assert api.call("GET", f"{path}/held").status == 404


def test_a_pod_terminates_for_its_grace_period_then_goes(api: Any, demo: str) -> None:
    path = f"/api/v1/namespaces/{demo}/pods"
    container = {"name": "main", "image": "registry.example/app:1"}
    api.call("POST", path, {"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [container]}})
    marked = api.call("DELETE", f"{path}/p?gracePeriodSeconds=1").json
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 1
    api.until(f"{path}/p", lambda found: found.get("code") == 404)
    api.call("POST", path, {"metadata": {"name": "q"}, "spec": {"containers": [container]}})
    assert api.call("DELETE", f"{path}/q").status == 200
    assert api.call("GET", f"{path}/q").status == 404


def test_a_namespace_takes_its_contents_along_and_accepts_no_more(api: Any) -> None:
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "doomed"}})
    address = api.call("POST", services("doomed"), SERVICE).json["spec"]["clusterIP"]
    held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    api.call("POST", "/api/v1/namespaces/doomed/configmaps", held)
    assert api.call("DELETE", "/api/v1/namespaces/doomed").json["status"]["phase"] == "Terminating"
    refused = api.call("POST", services("doomed"), {**SERVICE, "metadata": {"name": "late"}})
    assert (refused.status, refused.json["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    api.until(f"{services('doomed')}/web", lambda found: found.get("code") == 404)
    api.call("PATCH", "/api/v1/namespaces/doomed/configmaps/held", {"metadata": {"finalizers": None}}, MERGE)
    api.until("/api/v1/namespaces/doomed", lambda found: found.get("code") == 404)
    assert api.call("GET", f"/apis/networking.k8s.io/v1/ipaddresses/{address}").status == 404


def test_an_object_needs_a_namespace_that_exists(api: Any) -> None:
    answer = api.call("POST", services("nowhere"), SERVICE)
    assert (answer.status, answer.json["message"]) == (404, 'namespaces "nowhere" not found')


def test_concurrent_patches_are_all_applied(api: Any, demo: str) -> None:
    api.call("POST", services(demo), SERVICE)

    def patch(number: int) -> None:
        body = {"metadata": {"labels": {f"l{number}": "x"}}}
        assert api.call("PATCH", f"{services(demo)}/web", body, MERGE).status == 200

    threads = [threading.Thread(target=patch, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(api.get(f"{services(demo)}/web")["metadata"]["labels"]) == 8


def test_apply_keeps_what_others_set_and_drops_what_it_no_longer_says(api: Any, demo: str) -> None:
    path = f"{services(demo)}/web"

    def apply(labels: dict[str, str], query: str = "", manager: str = "me") -> Any:
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": labels}}
        body["spec"] = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        return api.call("PATCH", f"{path}?fieldManager={manager}{query}", body, APPLY)

    assert apply({"mine": "1", "old": "1"}).status == 201
    api.call("PATCH", path, {"metadata": {"labels": {"theirs": "1"}}}, {**MERGE, "User-Agent": "them/1"})
    assert apply({"mine": "2"}).json["metadata"]["labels"] == {"mine": "2", "theirs": "1"}
    refused = apply({"mine": "3"}, manager="other")
    assert refused.status == 409
    assert refused.json["message"] == 'Apply failed with 1 conflict: conflict with "me": .metadata.labels.mine'
    forced = apply({"mine": "3"}, "&force=true", manager="other").json
    assert forced["metadata"]["labels"]["mine"] == "3"
    before = api.get(path)
    assert apply({"mine": "3"}, manager="other").json == before


def test_a_service_changes_its_type_and_gives_back_what_it_no_longer_needs(api: Any, demo: str) -> None:
    path = f"{services(demo)}/web"
    node_port = {**SERVICE, "spec": {**SERVICE["spec"], "type": "NodePort"}}
    first = api.call("POST", services(demo), node_port).json
    port = first["spec"]["ports"][0]["nodePort"]
    taken = {"metadata": {"name": "thief"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}}
    refused = api.call("POST", services(demo), taken)
    assert (
        refused.json["details"]["causes"][0]["message"] == f"Invalid value: {port}: provided port is already allocated"
    )
    plain = {**first, "spec": {**first["spec"], "type": "ClusterIP"}}
    second = api.call("PUT", path, plain).json
    assert "nodePort" not in second["spec"]["ports"][0]
    assert second["spec"]["clusterIP"] == first["spec"]["clusterIP"]
    assert api.call("POST", services(demo), taken).status == 201
    named = {"spec": {"type": "ExternalName", "externalName": "example.com"}}
    third = api.call("PATCH", path, named, MERGE).json
    assert not {"clusterIP", "clusterIPs", "ipFamilies"} & third["spec"].keys()
    address = first["spec"]["clusterIP"]
    assert api.call("GET", f"/apis/networking.k8s.io/v1/ipaddresses/{address}").status == 404
    asked = {**SERVICE, "metadata": {"name": "heir"}, "spec": {**SERVICE["spec"], "clusterIP": address}}
    assert api.call("POST", services(demo), asked).status == 201


@pytest.mark.parametrize("address", ["10.96.0.300", "localhost", "fe80::1%eth0", "10.96.0.0/16", " "])
def test_a_cluster_ip_that_is_no_address_is_invalid(api: Any, demo: str, address: str) -> None:
    body: Any = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], "clusterIP": address}}
    answer = api.call("POST", services(demo), body)
    assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "spec.clusterIPs[0]")
    body["spec"].pop("clusterIP")
    created = api.call("POST", services(demo), body).json
    moved = {**created, "spec": {**created["spec"], "clusterIP": address, "clusterIPs": [address]}}
    assert api.call("PUT", f"{services(demo)}/web", moved).status == 422


def test_the_cluster_ip_is_immutable_and_kept_when_left_out(api: Any, demo: str) -> None:
    path = f"{services(demo)}/web"
    created = api.call("POST", services(demo), SERVICE).json
    moved = {**created, "spec": {**created["spec"], "clusterIP": "10.96.200.200", "clusterIPs": ["10.96.200.200"]}}
    answer = api.call("PUT", path, moved)
    assert answer.status == 422
    assert "field is immutable" in answer.json["message"]
    left_out = {**created, "spec": {"selector": {"app": "web"}, "ports": [{"port": 81}]}}
    assert api.call("PUT", path, left_out).json["spec"]["clusterIP"] == created["spec"]["clusterIP"]


def test_a_status_is_written_through_its_subresource_only(api: Any, demo: str) -> None:
    path = f"{services(demo)}/web"
    balanced = {**SERVICE, "spec": {**SERVICE["spec"], "type": "LoadBalancer"}}
    created = api.call("POST", services(demo), balanced).json
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    assert api.call("PUT", path, {**created, "status": status}).json["status"] == {"loadBalancer": {}}
    changed = {**created, "status": status, "spec": {**created["spec"], "selector": {"app": "other"}}}
    answer = api.call("PUT", f"{path}/status", changed).json
    assert answer["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.1", "ipMode": "VIP"}]
    assert answer["spec"] == created["spec"]


def test_selectors_follow_objects_in_and_out_of_a_watch(api: Any, demo: str) -> None:
    since = api.get(services(demo))["metadata"]["resourceVersion"]
    api.call("POST", services(demo), SERVICE)
    for value in ({"proxy": "other"}, {"proxy": None}):
        api.call("PATCH", f"{services(demo)}/web", {"metadata": {"labels": value}}, MERGE)
    path = f"{services(demo)}?watch=1&resourceVersion={since}&timeoutSeconds=1&labelSelector=!proxy"
    seen = list(api.watch(path))
    assert [event["type"] for event in seen] == ["ADDED", "DELETED", "ADDED"]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert revisions == sorted(revisions)
    assert "labels" not in seen[1]["object"]["metadata"]


def test_a_field_selector_nobody_knows_is_a_bad_request(api: Any, demo: str) -> None:
    answer = api.call("GET", f"{services(demo)}?fieldSelector=spec.colour=red")
    assert (answer.status, answer.json["message"]) == (400, "field label not supported: spec.colour")
    headless = {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    api.call("POST", services(demo), headless)
    api.call("POST", services(demo), SERVICE)
    found = api.get(f"{services(demo)}?fieldSelector=spec.clusterIP!=None")
    assert [item["metadata"]["name"] for item in found["items"]] == ["web"]


def test_an_event_has_two_faces(api: Any, demo: str) -> None:
    core = f"/api/v1/namespaces/{demo}/events"
    about = {"kind": "Service", "name": "web", "namespace": demo}
    api.call("POST", core, {"metadata": {"name": "e1"}, "involvedObject": about, "reason": "Seen", "message": "hello"})
    modern = api.get(f"/apis/events.k8s.io/v1/namespaces/{demo}/events/e1")
    assert (modern["apiVersion"], modern["note"], modern["regarding"]) == ("events.k8s.io/v1", "hello", about)
    found = api.get(f"{core}?fieldSelector=involvedObject.name=web,involvedObject.kind=Service")
    assert [item["message"] for item in found["items"]] == ["hello"]


def test_roles(api: Any, demo: str) -> None:
    reader = api.server.credentials.reader_token
    assert api.call("GET", services(demo), token=reader).status == 200
    refused = api.call("POST", services(demo), SERVICE, token=reader)
    assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert api.call("GET", f"/api/v1/namespaces/{demo}/secrets", token=reader).status == 403
    for path in ("/livez", "/readyz", "/version"):
        assert api.call("GET", path, token=None).status == 200
    for path in ("/api", "/healthz", "/openapi/v3", "/nothing", "/livezx/../api"):
        assert api.call("GET", path, token=None).status == 401


def test_every_group_has_an_openapi_document(api: Any) -> None:
    index = api.get("/openapi/v3")["paths"]
    assert "api/v1" in index
    assert "apis/discovery.k8s.io/v1" in index
    for entry in index.values():
        document = api.get(entry["serverRelativeURL"])
        schemas = document["components"]["schemas"]
        for schema in schemas.values():
            for found in schema["properties"].values():
                for reference in found.get("allOf", []):
                    assert reference["$ref"].rpartition("/")[2] in schemas


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        pytest.param("", "application/json", id="anything"),
        pytest.param("application/json, */*", "application/json", id="json"),
        pytest.param(f"{PROTOBUF_SCHEMA.replace('.v1.0', '@v1.0')}", PROTOBUF_SCHEMA, id="as old clients ask"),
        pytest.param(f"{PROTOBUF_SCHEMA}, application/json", PROTOBUF_SCHEMA, id="as newer ones do"),
    ],
)
def test_version_2_of_the_schema_comes_in_the_requested_format(api: Any, accept: str, content_type: str) -> None:
    answer = api.call("GET", "/openapi/v2", headers={"Accept": accept})
    assert (answer.status, answer.headers["Content-Type"]) == (200, content_type)
    if content_type == "application/json":
        port = answer.json["definitions"]["io.k8s.api.core.v1.ServicePort"]
        assert (port["required"], port["properties"]["port"]["type"]) == (["port"], "integer")


APPLY = {"Content-Type": "application/apply-patch+yaml"}


def test_who_applies_a_status_with_the_object_neither_sets_nor_owns_it(api: Any, demo: str) -> None:
    """A client that does it through the subresource meets no conflict then (Kubernetes' own test of server-side apply)."""
    path = f"/api/v1/namespaces/{demo}/services/web"
    named = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    spec = {**named, "spec": {"ports": [{"port": 80}]}}
    condition = {
        "type": "Mine",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {**named, "status": {"conditions": [condition]}}
    assert api.call("PATCH", f"{path}?fieldManager=one", spec, APPLY).status == 201
    applied = api.call("PATCH", f"{path}?fieldManager=two", status, APPLY)
    assert (applied.status, applied.json["status"].get("conditions")) == (200, None)
    assert "two" not in {entry["manager"] for entry in applied.json["metadata"]["managedFields"]}
    applied = api.call(
        "PATCH", f"{path}/status?fieldManager=three", {**status, "spec": {"ports": [{"port": 81}]}}, APPLY
    )
    assert (applied.status, applied.json["status"]["conditions"]) == (200, [condition])
    assert applied.json["spec"]["ports"][0]["port"] == 80
    owned = {entry["manager"]: entry["fieldsV1"] for entry in applied.json["metadata"]["managedFields"]}
    assert set(owned["three"]) == {"f:status"}


def test_no_operation_of_the_schema_has_an_empty_list_of_parameters(api: Any) -> None:
    """Go leaves it out when it writes the document again, and finds the two different."""
    for path in ("api/v1", "apis/coordination.k8s.io/v1"):
        operations = [found for item in api.get(f"/openapi/v3/{path}")["paths"].values() for found in item.values()]
        assert all(found.get("parameters", True) for found in operations)
