"""Requests made to crash the server or to hold it up: each gets its answer, and nobody else waits for it."""

import asyncio
import base64
import json
import time
import zlib
from contextlib import closing
from typing import Any

import pytest

from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import Change, draft
from nodeagent.apiserver.storage.store import Store
from tests.contract.apiserver.conftest import Api, ServerThread
from tests.contract.apiserver.stalls import hold_nobody_up
from tests.harness.stopwatch import allowed

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
    def post_and_delete() -> Any:
        answer = api.call("POST", CONFIGMAPS, raw=body, headers={"Content-Type": media_type})
        api.call("DELETE", f"{CONFIGMAPS}/a")
        api.call("DELETE", f"{CONFIGMAPS}/b")
        return answer

    answer = hold_nobody_up(api.loop, post_and_delete)
    assert answer.status == code, answer.body[:300]
    assert len(answer.body) < 200_000 or code == 201
    assert sum(map(len, answer.headers.values())) < 16_384


@pytest.mark.parametrize(
    "owned",
    [
        pytest.param({"k:{": {}}, id="item cut short"),
        pytest.param({"k:[1]": {}}, id="item by a list"),
        pytest.param(
            {'k:{"a":1}': {}, 'k:{"a":"x"}': {}, 'k:{"a":null}': {}, 'k:{"a":[1]}': {}}, id="keys of all types"
        ),
        pytest.param({"v:": {}, "i:x": {}, "": {}, "x": {}}, id="steps of no kind"),
        pytest.param({"f:data": {".": {"f:x": 1}, "f:x": [1]}}, id="no tree"),
        pytest.param({"i:99999999999999999999": {}, "v:1": {}}, id="places"),
    ],
)
@pytest.mark.parametrize("moment", [{}, {"time": None}, {"time": "2026-01-01T00:00:00Z"}], ids=["no", "null", "a"])
def test_an_object_can_be_changed_with_any_managed_fields(api: Any, owned: Any, moment: Any) -> None:
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": owned}
    body = {"metadata": {"name": "owned", "managedFields": [{**entry, **moment}]}, "data": {"x": "y"}}
    assert api.call("POST", CONFIGMAPS, body).status == 201
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "z"}}
    apply = {"Content-Type": "application/apply-patch+yaml"}
    assert api.call("PATCH", f"{CONFIGMAPS}/owned?fieldManager=a&force=true", applied, apply).status == 200
    merge = {"Content-Type": "application/merge-patch+json"}
    assert api.call("PATCH", f"{CONFIGMAPS}/owned", {"data": {"x": "w"}}, merge).status == 200
    assert api.call("DELETE", f"{CONFIGMAPS}/owned").status == 200


def test_an_index_of_five_thousand_digits_is_no_index(api: Any) -> None:
    patch = [{"op": "remove", "path": "/metadata/finalizers/" + "9" * 5000}]
    assert api.call("POST", CONFIGMAPS, raw=configmap("indexed")).status == 201
    finalizers = {"metadata": {"finalizers": ["example.com/a"]}}
    api.call("PATCH", f"{CONFIGMAPS}/indexed", finalizers, {"Content-Type": "application/merge-patch+json"})
    assert api.call("PATCH", f"{CONFIGMAPS}/indexed", patch, {"Content-Type": JSON_PATCH}).status == 422


def test_an_event_cannot_spoil_the_list_of_events(api: Any) -> None:
    """Agents may write events: an invalid time would have ended everybody's `kubectl get events`."""
    path = "/api/v1/namespaces/default/events"
    about = {"namespace": "default"}
    for moment, code in (
        ("2026-99-99T99:99:99Z", 400),
        ("\uff12026-01-01T00:00:00Z", 400),
        ("0001-01-01T00:00:00Z", 201),
    ):
        body = {"metadata": {"generateName": "e-"}, "involvedObject": about, "lastTimestamp": moment}
        assert api.call("POST", path, body).status == code
    listed = api.call("GET", path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert (listed.status, listed.json["kind"]) == (200, "Table")


def test_a_patch_that_copies_a_map_into_itself_is_refused(api: Any) -> None:
    assert api.call("POST", CONFIGMAPS, raw=configmap("bomb", data={"a": "x" * 1000})).status == 201
    patch = [{"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(200)]
    answer = hold_nobody_up(
        api.loop, lambda: api.call("PATCH", f"{CONFIGMAPS}/bomb", patch, {"Content-Type": JSON_PATCH})
    )
    assert (answer.status, "exceeding the limit" in answer.body.decode()) == (422, True)
    long = api.call(
        "PATCH", f"{CONFIGMAPS}/bomb", [{"op": "test", "path": "/kind"}] * 10_001, {"Content-Type": JSON_PATCH}
    )
    assert long.status == 413


def test_large_honest_objects_hold_nobody_up(api: Any) -> None:
    endpoints = [{"addresses": [f"192.0.{n // 250}.{n % 250}"], "nodeName": f"n{n}", "zone": "z"} for n in range(1000)]
    body = {"metadata": {"name": "large", "labels": {}}, "addressType": "IPv4", "endpoints": endpoints}
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

    def make_and_change() -> None:
        made = api.call("POST", path, body)
        assert made.status == 201
        patch = {"metadata": {"annotations": {"a": "b"}}}
        merged = {"Content-Type": "application/merge-patch+json"}
        assert api.call("PATCH", f"{path}/large", patch, merged).status == 200
        assert api.call("PUT", f"{path}/large", made.json).status == 409
        assert api.call("DELETE", f"{path}/large").status == 200

    hold_nobody_up(api.loop, make_and_change)


@pytest.mark.parametrize(
    "token", [b'{"v":"\xff"}', b'{"a":' + b"[" * 3000, b"\xff", b"[]"], ids=["text", "deep", "byte", "list"]
)
def test_a_continue_token_of_any_bytes_is_refused(api: Any, token: bytes) -> None:
    answer = api.call("GET", f"{CONFIGMAPS}?limit=1&continue={base64.urlsafe_b64encode(token).decode().rstrip('=')}")
    assert answer.status == 400, answer.body
    assert answer.json["message"].startswith("invalid continue token: ")


@pytest.mark.parametrize(
    "query",
    ["limit=" + "9" * 5000, "resourceVersion=" + "9" * 5000, "watch=1&timeoutSeconds=" + "9" * 5000],
    ids=["limit", "version", "seconds"],
)
def test_a_number_of_five_thousand_digits_is_refused(api: Any, query: str) -> None:
    started = time.monotonic()
    answer = api.call("GET", f"{CONFIGMAPS}?{query}")
    assert answer.status == 400, answer.body
    assert time.monotonic() - started < allowed(2.0)


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
    answer = hold_nobody_up(many.loop, lambda: many.call("GET", f"{CONFIGMAPS}{query}", headers={"Accept": accept}))
    assert answer.status == 200


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


@pytest.mark.parametrize(
    "accept",
    [
        pytest.param("application/json;as=Table;v=v1;g=meta.k8s.io", id="table"),
        pytest.param("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", id="metadata only"),
    ],
)
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_list_that_is_made_while_it_is_sent_arrives_whole(many: Any, accept: str, version: str) -> None:
    """It is chunked, or ends with the connection where a client knows no chunks."""
    connection = many.connect()
    connection._http_vsn, connection._http_vsn_str = (10, version) if version.endswith("0") else (11, version)
    headers = {"Accept": accept, "Authorization": f"Bearer {many.token}"}
    connection.request("GET", f"{CONFIGMAPS}?includeObject=Object", headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert len(body) > 1_000_000
    assert response.getheader("Transfer-Encoding") == ("chunked" if version.endswith("1") else None)
    assert response.getheader("Content-Length") is None
    found = json.loads(body)
    objects = [row["object"] for row in found["rows"]] if "rows" in found else found["items"]
    names = {entry["metadata"]["name"] for entry in objects}
    assert names - {"kube-root-ca.crt"} == {f"n{number}" for number in range(5000)}


def answer_of(api: Api, head: str, *lines: bytes, body: bytes = b"") -> bytes:
    """What comes back to a request whose head may hold any bytes, until the server closes the connection."""
    sent = [head.encode(), b"Host: a", b"Connection: close", b"Authorization: Bearer " + api.token.encode(), *lines]
    sent += [b"Content-Length: %d" % len(body)] if body else []
    with closing(api.connect()) as connection:
        connection.connect()
        connection.sock.sendall(b"\r\n".join(sent) + b"\r\n\r\n" + body)
        received = b""
        while part := connection.sock.recv(65_536):
            received += part
    return received


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        pytest.param([b"User-Agent: a\xff/1", b"Content-Type: application/json"], 201, id="agent"),
        pytest.param([b"User-Agent: a\tb/1", b"Content-Type: application/json"], 201, id="a tab in the agent"),
        pytest.param([b"Accept: \xff", b"Content-Type: application/json"], 406, id="accept"),
        pytest.param([b"Accept: application/json;as=Table;v=\xff;g=meta.k8s.io"], 406, id="version"),
        pytest.param([b"Content-Type: \xff"], 415, id="content"),
    ],
)
def test_bytes_that_are_no_text_are_answered_as_kubernetes_does(
    api: Any, lines: list[bytes], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    body = configmap(f"bytes-{code}-{zlib.crc32(b''.join(lines)):x}")
    found = answer_of(api, f"POST {CONFIGMAPS} HTTP/1.1", *lines, body=body)
    assert found.startswith(b"HTTP/1.1 %d " % code), found[:300]
    answer = json.loads(found.partition(b"\r\n\r\n")[2])
    if code == 201:
        manager = answer["metadata"]["managedFields"][0]["manager"] if answer["metadata"].get("managedFields") else "a"
        assert manager in ("a", "a\ufffd", "ab")
    assert not caplog.records


VERSIONS = ["v2", "", 'v1"', "v1%22x"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["Table", "PartialObjectMetadata", "PartialObjectMetadataList", "Nothing"])
@pytest.mark.parametrize("query", ["", "?watch=1&timeoutSeconds=1", "?limit=1"])
def test_forms_there_are_not_are_not_acceptable(api: Any, version: str, kind: str, query: str) -> None:
    """kube-apiserver has meta.k8s.io/v1 and v1beta1, and falls back to whatever else the client takes."""
    asked = f"application/json;as={kind};v={version};g=meta.k8s.io"
    assert api.call("GET", f"{CONFIGMAPS}{query}", headers={"Accept": asked}).status == 406
    fallen_back = api.call("GET", f"{CONFIGMAPS}{query}", headers={"Accept": f"{asked},application/json"})
    assert fallen_back.status == 200


def test_a_write_whose_answer_the_client_cannot_accept_is_not_done(api: Any) -> None:
    asked = {"Accept": "application/json;as=Table;v=v2;g=meta.k8s.io"}
    assert api.call("POST", CONFIGMAPS, raw=configmap("unwritten"), headers=asked).status == 406
    assert api.call("GET", f"{CONFIGMAPS}/unwritten").status == 404


@pytest.mark.parametrize("accept", ["as=Table;v=v1", "as=Table;g=meta.k8s.io", "as=Table;v=v1;g=other", "as=Table"])
def test_a_form_is_asked_for_with_group_and_version(api: Any, accept: str) -> None:
    assert api.call("GET", CONFIGMAPS, headers={"Accept": f"application/json;{accept}"}).status == 406


@pytest.mark.parametrize(
    "query", ["dryRun=&dryRun=All", "dryRun=All&dryRun=", "dryRun=All&dryRun=x", "dryRun=", "dryRun"]
)
def test_a_dry_run_writes_nothing(api: Any, query: str) -> None:
    path = f"{CONFIGMAPS}/tried"
    refused = api.call("POST", f"{CONFIGMAPS}?{query}", raw=configmap("tried"))
    assert (refused.status, "dryRun: Unsupported value: [" in refused.json["message"]) == (422, True)
    assert api.call("POST", f"{CONFIGMAPS}?dryRun=All&dryRun=All", raw=configmap("tried")).status == 201
    assert api.call("GET", path).status == 404
    assert api.call("POST", CONFIGMAPS, raw=configmap("tried")).status == 201
    merge = {"Content-Type": "application/merge-patch+json"}
    assert api.call("PATCH", f"{path}?{query}", {"data": {"a": "b"}}, merge).status == 422
    assert api.call("DELETE", f"{path}?{query}").status == 422
    assert api.call("DELETE", path, {"kind": "DeleteOptions", "dryRun": ["", "All"]}).status == 422
    assert api.call("DELETE", path, {"kind": "DeleteOptions", "dryRun": ["All", "All"]}).status == 200
    assert "data" not in api.get(path)
    assert api.call("DELETE", path).status == 200


def test_a_watch_without_chunks_ends_with_its_connection(api: Any) -> None:
    """HTTP/1.0 knows none."""
    found = answer_of(api, f"GET {CONFIGMAPS}?watch=1&timeoutSeconds=1 HTTP/1.0")
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"chunked" not in head
    assert all(json.loads(line)["type"] == "ADDED" for line in body.splitlines())


@pytest.mark.parametrize("query", ["", "?watch=1&timeoutSeconds=1"])
def test_a_head_of_a_resource_is_not_allowed_and_has_no_body(api: Any, query: str) -> None:
    head, _, body = answer_of(api, f"HEAD {CONFIGMAPS}{query} HTTP/1.1").partition(b"\r\n\r\n")
    assert (head.split()[1], body) == (b"405", b"")


def test_errors_repeat_only_the_beginning_of_what_is_long(api: Any) -> None:
    long = "!" * 1_000_000
    for body in ({"metadata": {"name": long}}, {"metadata": {"name": "a", "finalizers": [long] * 2}}):
        answer = api.call("POST", CONFIGMAPS, body)
        assert (answer.status, len(answer.body) < 100_000) == (422, True)
    answer = api.call("POST", CONFIGMAPS, {"metadata": {"name": "long-field"}, "\n" + long: 1})
    assert (answer.status, len(answer.headers["Warning"]) < 8192) == (201, True)
