"""No request holds the loop for more than 50 ms: every path through the server, with the largest inputs that are let in.

What counts is the processor time of single turns of the loop (`stalls.py`), so a busy machine makes no difference.
"""

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from nodeagent.apiserver.storage.records import Change, draft
from tests.contract.apiserver.conftest import Api, ServerThread
from tests.contract.apiserver.stalls import LOOP_HELD_SECONDS, TRIES, hold_nobody_up, measured
from tests.harness.protobuf import envelope, field

pytestmark = pytest.mark.slow

EVENTS = 20_000
LINE_BYTES = 7800
"""A query that fits into the longest line of a request that is read."""
BODY_BYTES = 3 * 1024 * 1024 - 200
OBJECT_BYTES = 400_000
"""Of which an object comes that is stored, with a note for each field of who set it."""
SMALL_BYTES = 16 * 1024 - 200
"""The largest body that is worked on in the loop."""

EVENT_PATH = "/api/v1/namespaces/default/events"
MODERN_PATH = "/apis/events.k8s.io/v1/namespaces/default/events"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
WATCH = "watch=1&timeoutSeconds=1"


def long_list(term: Callable[[int], str]) -> str:
    """As many terms as fit into a line, joined by commas."""
    terms, length = list[str](), 0
    while length < LINE_BYTES:
        terms.append(quote(term(len(terms)), safe="!=()"))
        length += len(terms[-1]) + 1
    return ",".join(terms[:-1])


LABELS = "labelSelector=" + long_list(lambda n: f"a!=k{n:x}")
"""All terms hold for each event, so all are looked at."""
NO_LABELS = f"{LABELS[: LINE_BYTES - 10].rpartition(',')[0]},none"
FIELDS = "fieldSelector=" + long_list(lambda n: f"reason!=r{n:x}")
VALUES = "labelSelector=number%20notin%20(" + long_list(lambda n: f"x{n:x}") + ")"


def event(number: int, turn: int) -> bytes:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    meta = {"name": f"e{number}", "namespace": "default", "uid": str(number), "resourceVersion": "0"}
    return draft(
        {
            "metadata": {**meta, "creationTimestamp": now, "labels": {"a": "b", "number": str(turn)}},
            "involvedObject": {"namespace": "default", "name": "x"},
            "reason": "Tested",
            "message": "m" * 100,
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": now,
            "type": "Normal",
            "eventTime": None,
            "reportingComponent": "",
            "reportingInstance": "",
        }
    )


class Full:
    """A server with 20,000 events, each of which was changed; half of them were deleted in between and came again."""

    def __init__(self, api: Api) -> None:
        self.api = api
        store = api.server._store_in_use
        assert store is not None
        self.begin = store.revision

        async def write(body: Callable[[int], Change], numbers: range) -> int:
            for start in range(numbers.start, numbers.stop, 1000):
                await store.commit([body(number) for number in range(start, start + 1000)])
            return store.revision

        def put(turn: int) -> Callable[[int], Change]:
            return lambda n: Change("events", f"default/e{n}", None, event(n, turn))

        def gone(number: int) -> Change:
            return Change("events", f"default/e{number}", None, None, event(number, 1))

        async def fill() -> None:
            self.middle = await write(put(0), range(EVENTS))
            await write(put(1), range(EVENTS))
            await write(gone, range(EVENTS // 2))
            await write(put(2), range(EVENTS // 2))

        asyncio.run_coroutine_threadsafe(fill(), api.loop).result()

    def get(self, path: str, accept: str = JSON) -> Any:
        answer = self.api.call("GET", path, headers={"Accept": accept})
        assert answer.status == 200, answer.body[:300]
        return answer


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Full]:
    running = ServerThread(tmp_path_factory.mktemp("full"), in_memory=True)
    found = Full(Api(running))
    # What the tests themselves hold is not for a collection in the server's thread to walk through.
    gc.collect()
    gc.freeze()
    yield found
    gc.unfreeze()
    found.api.stop()


def test_a_turn_that_is_long_is_seen(full: Full) -> None:
    def work() -> None:
        ends = time.thread_time() + 5 * LOOP_HELD_SECONDS  # also on a machine that is slower than the reference
        while time.thread_time() < ends:
            pass

    with measured(full.api.loop) as stall:
        full.api.loop.call_soon_threadsafe(work)
        full.get("/api")
    assert stall.longest_s > LOOP_HELD_SECONDS


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        pytest.param(EVENT_PATH, JSON, id="list"),
        pytest.param(EVENT_PATH, TABLE, id="table"),
        pytest.param(EVENT_PATH, PARTIALS, id="metadata only"),
        pytest.param(MODERN_PATH, JSON, id="another version"),
        pytest.param(f"{EVENT_PATH}?{LABELS}", JSON, id="labels that all match"),
        pytest.param(f"{EVENT_PATH}?{NO_LABELS}", JSON, id="labels that none match"),
        pytest.param(f"{EVENT_PATH}?{VALUES}", JSON, id="one label of many values"),
        pytest.param(f"{EVENT_PATH}?{FIELDS}", JSON, id="fields"),
        pytest.param(f"{EVENT_PATH}?limit=1&{NO_LABELS}", JSON, id="a page"),
        pytest.param(f"{EVENT_PATH}?resourceVersion={{middle}}&resourceVersionMatch=Exact", JSON, id="the past"),
        pytest.param(f"{EVENT_PATH}?resourceVersion={{middle}}&limit=1", JSON, id="a page of the past"),
        pytest.param(f"{EVENT_PATH}?resourceVersion={{middle}}&limit=1&{NO_LABELS}", JSON, id="the past, selected"),
        pytest.param(f"{EVENT_PATH}?{WATCH}", JSON, id="watch"),
        pytest.param(f"{EVENT_PATH}?{WATCH}", TABLE, id="watch as tables"),
        pytest.param(f"{EVENT_PATH}?{WATCH}&{NO_LABELS}", JSON, id="watch nothing"),
        pytest.param(
            f"{EVENT_PATH}?{WATCH}&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
            *[PARTIAL],
            id="watch with initial events",
        ),
        pytest.param(f"{EVENT_PATH}?{WATCH}&resourceVersion={{begin}}", JSON, id="watch the past"),
        pytest.param(f"{EVENT_PATH}?{WATCH}&resourceVersion={{begin}}", TABLE, id="watch the past as tables"),
        pytest.param(f"{EVENT_PATH}?{WATCH}&resourceVersion={{begin}}", PARTIAL, id="watch the past's metadata"),
        pytest.param(f"{MODERN_PATH}?{WATCH}&resourceVersion={{begin}}", JSON, id="watch the past, another version"),
        pytest.param(
            f"{EVENT_PATH}?{WATCH}&resourceVersion={{begin}}&{NO_LABELS}", JSON, id="watch nothing of the past"
        ),
        pytest.param(f"{EVENT_PATH}?{WATCH}&resourceVersion={{begin}}&{FIELDS}", JSON, id="watch the past by fields"),
        pytest.param("/openapi/v2", JSON, id="openapi v2"),
        pytest.param("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", id="openapi binary"),
        pytest.param("/openapi/v3/api/v1", JSON, id="openapi v3"),
        pytest.param("/api", f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", id="discovery"),
        pytest.param("/metrics", JSON, id="metrics"),
    ],
)
def test_reading(full: Full, path: str, accept: str) -> None:
    hold_nobody_up(full.api.loop, lambda: full.get(path.format(begin=full.begin, middle=full.middle), accept))


def test_pages_to_the_end(full: Full) -> None:
    path = f"{EVENT_PATH}?limit=4000&{FIELDS[: LINE_BYTES - 500].rpartition(',')[0]}"

    def count() -> int:
        found, token = 0, ""
        while found == 0 or token:
            page = full.get(f"{path}&continue={token}").json
            found, token = found + len(page["items"]), page["metadata"].get("continue", "")
        return found

    assert hold_nobody_up(full.api.loop, count) == EVENTS


def test_a_deletion_of_thousands_that_is_only_tried(full: Full) -> None:

    def delete(query: str) -> None:
        assert full.api.call("DELETE", f"{EVENT_PATH}?{query}").status == 200

    hold_nobody_up(full.api.loop, lambda: delete("dryRun=All"))
    hold_nobody_up(full.api.loop, lambda: delete(NO_LABELS))


def test_many_clients_with_much_to_do_share_a_turn(full: Full) -> None:
    """Each of them alone would hold nobody up; nor do they together, and small requests are answered between them."""
    asked = [(f"{EVENT_PATH}?{WATCH}&resourceVersion={full.begin}&{NO_LABELS}", JSON), (EVENT_PATH, TABLE)] * 2
    asked += [(f"{EVENT_PATH}?{WATCH}&resourceVersion={full.begin}", TABLE), (EVENT_PATH, JSON)] * 2

    def ask_all() -> int:
        threads = [threading.Thread(target=full.get, args=about) for about in asked]
        for thread in threads:
            thread.start()
        answered = 0
        while any(thread.is_alive() for thread in threads):
            assert full.api.call("GET", "/livez").status == 200
            answered += 1
        for thread in threads:
            thread.join()
        return answered

    assert hold_nobody_up(full.api.loop, ask_all) > 10


def keys(size_bytes: int, spelling: str = "k{:x}") -> dict[str, str]:
    """A map of short keys and no values, of about so many bytes and at most as many values as are read."""
    return {spelling.format(number): "" for number in range(min(size_bytes // 11, 99_000))}


def encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def named(name: str, **rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **rest.pop("meta", {})}, **rest}


def owned(size_bytes: int) -> list[Any]:
    fields: dict[str, Any] = {f"f:{key}": {} for key in keys(size_bytes)}
    return [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": fields}}]  # fmt: skip


def bodies(size: int) -> Iterator[tuple[str, str, str, bytes]]:
    """(what, path, media type, body), of about so many bytes."""
    yield "labels", CONFIGMAPS, JSON, encoded(named("labels", meta={"labels": keys(size)}))
    yield "wrong labels", CONFIGMAPS, JSON, encoded(named("wrong", meta={"labels": keys(size, "!{:x}")}))
    yield "data", CONFIGMAPS, JSON, encoded(named("data", data=keys(size)))
    yield "a long value", CONFIGMAPS, JSON, encoded(named("long", data={"a": "\\" * (size // 2 - 100)}))
    yield "unknown fields", CONFIGMAPS, JSON, encoded({**named("unknown"), **keys(size)})
    yield "a long unknown field", CONFIGMAPS, JSON, encoded({**named("longest"), "\x01" * (size // 6 - 30): 1})
    yield "repeated fields", CONFIGMAPS, JSON, b'{"metadata":{"name":"again"},"data":{%b}}' % b",".join([b'"a":""'] * (size // 8))  # fmt: skip
    yield "finalizers", CONFIGMAPS, JSON, encoded(named("final", meta={"finalizers": ["a/b"] * min(size // 7, 99_000)}))
    yield "empty owners", CONFIGMAPS, JSON, encoded(named("owners", meta={"ownerReferences": [{}] * (size // 4)}))
    yield "managed fields", CONFIGMAPS, JSON, encoded(named("managed", meta={"managedFields": owned(size)}))
    yield "a long name", CONFIGMAPS, JSON, encoded(named("a." * (size // 2 - 40) + "!"))
    yield "YAML", CONFIGMAPS, YAML, b"{metadata: {name: yaml}, data: {%b}}" % b",".join(b"k%x: a" % n for n in range(size // 10))  # fmt: skip
    yield "deep YAML", CONFIGMAPS, YAML, b"- " * (size // 2)
    yield "YAML with aliases", CONFIGMAPS, YAML, b"a: &a [x,x,x]\nb: [%b]" % (b"*a," * (size // 4))
    yield "protobuf", EVENT_PATH, PROTOBUF, envelope("v1", "Event", field(1, field(13, b"") * (size // 2 - 100)))
    yield "an event", MODERN_PATH, JSON, encoded(
        named("event", meta={"labels": keys(size)}, eventTime="2026-01-01T00:00:00.000000Z", reportingController="a",
              reportingInstance="b", action="c", reason="d", type="Normal", regarding={"namespace": "default"})
    )  # fmt: skip
    yield (
        "a slice",
        SLICES,
        JSON,
        encoded(
            named("slice", addressType="IPv4", endpoints=[{"addresses": ["192.0.2.1"] * 99}] * min(990, size // 1400))
        ),
    )
    addresses = [{"ip": f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"} for n in range(min(size // 20, 49_000))]
    yield "endpoints", ENDPOINTS, JSON, encoded(named("endpoints", subsets=[{"addresses": addresses, "ports": [{"port": 80}]}]))  # fmt: skip
    ports = [{"name": f"p{n}", "port": n % 65_535 + 1} for n in range(min(size // 30, 20_000))]
    yield "a service", SERVICES, JSON, encoded(named("service", spec={"clusterIP": "None", "ports": ports}))


@pytest.mark.parametrize("size", [SMALL_BYTES, OBJECT_BYTES, BODY_BYTES], ids=["small", "stored", "largest"])
def test_creating(full: Full, size: int) -> None:
    slow: dict[str, float] = {}
    for what, path, media_type, body in bodies(size):
        assert len(body) <= 3 * 1024 * 1024
        for _ in range(TRIES):
            created, deleted = create_and_delete(full.api, path, media_type, body)
            if max(created, deleted) < LOOP_HELD_SECONDS:
                break
        else:
            slow |= {what: created, f"{what} deleted": deleted}
    assert slow == {}, slow


def create_and_delete(api: Api, path: str, media_type: str, body: bytes) -> tuple[float, float]:
    """The longest turn while an object is created, and while it is deleted, if it was created."""
    with measured(api.loop) as creating:
        answer = api.call("POST", path, raw=body, headers={"Content-Type": media_type})
    assert answer.status in (201, 400, 413, 422, 429), answer.body[:300]
    if answer.status != 201:
        return creating.longest_s, 0.0
    name = answer.json["metadata"]["name"]
    with measured(api.loop) as deleting:
        assert api.call("DELETE", f"{path}/{name}").status == 200
        api.call("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, {"Content-Type": MERGE})
    return creating.longest_s, deleting.longest_s


MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
BIG = f"{CONFIGMAPS}/big"


def changes() -> Iterator[tuple[str, str, bytes]]:
    """(method, media type, body) of changes of `big`."""
    yield "PATCH", MERGE, encoded({"metadata": {"labels": {"x": "y"}}})
    yield "PATCH", MERGE, encoded({"data": keys(BODY_BYTES // 4, "q{:x}")})
    yield "PATCH", STRATEGIC, encoded({"metadata": {"annotations": {"x": "y"}}})
    kept = "x" * 100_000
    owners = [{"uid": f"{kept}{n}"} for n in range(20)]
    order = {"$setElementOrder/ownerReferences": [{"uid": f"z{n}"} for n in range(20_000)]}
    yield "PATCH", STRATEGIC, encoded({"metadata": {"ownerReferences": owners, **order}})
    yield "PATCH", JSON_PATCH, encoded([{"op": "add", "path": "/metadata/labels/z", "value": "1"}])
    yield "PATCH", JSON_PATCH, encoded([{"op": "copy", "from": "/metadata", "path": f"/x{n}"} for n in range(900)])
    yield "PATCH", JSON_PATCH, encoded([{"op": "test", "path": "/metadata/name", "value": "big"}] * 10_000)
    yield "PATCH", APPLY, encoded({"apiVersion": "v1", "kind": "ConfigMap", **named("big", data={"new": "1"})})
    yield "PUT", JSON, encoded(named("big", data=keys(300_000)))


def test_a_large_object_is_changed_and_shown(full: Full) -> None:
    slow: dict[str, float] = {}

    def step(what: str, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for _ in range(TRIES):
            with measured(full.api.loop) as stall:
                answer = full.api.call(method, path, raw=body, headers=given)
            if stall.longest_s < LOOP_HELD_SECONDS or what == "gone":
                break
        if stall.longest_s >= LOOP_HELD_SECONDS:
            slow[what] = stall.longest_s
        return answer

    first = named("big", meta={"labels": keys(350_000), "finalizers": ["a/b"]}, data=keys(350_000))
    made = full.api.call("POST", CONFIGMAPS, raw=encoded(first))
    assert made.status == 201, made.body[:300]
    assert len(made.body) > 1_000_000
    for accept in (JSON, TABLE, PARTIAL):
        step(f"got {accept}", "GET", f"{BIG}?includeObject=Object", Accept=accept)
        step(f"watched {accept}", "GET", f"{CONFIGMAPS}?{WATCH}", Accept=accept)
    for accept in (JSON, TABLE, PARTIALS):
        step(f"listed {accept}", "GET", f"{CONFIGMAPS}?includeObject=Object", Accept=accept)
    for number, (method, media_type, body) in enumerate(changes()):
        assert len(body) <= 3 * 1024 * 1024
        path = f"{BIG}?fieldManager=m{number}" + ("&force=1" if media_type == APPLY else "")
        answer = step(f"{number} {media_type}", method, path, body, Content_Type=media_type)
        assert answer.status in (200, 413, 422), answer.body[:300]
    step("marked", "DELETE", BIG)
    for accept in (JSON, TABLE, PARTIAL):
        path = f"{CONFIGMAPS}?{WATCH}&resourceVersion={full.begin}&{NO_LABELS}"
        step(f"seen leaving {accept}", "GET", path, Accept=accept)
    step("gone", "PATCH", BIG, encoded({"metadata": {"finalizers": None}}), Content_Type=MERGE)
    assert full.api.call("GET", BIG).status == 404
    assert slow == {}, slow
