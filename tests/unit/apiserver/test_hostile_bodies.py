"""Small bodies that come to much: refused before they take memory or time."""

import contextlib
import resource
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.apiserver.api.bodies import JSON, YAML, parse
from nodeagent.apiserver.machinery.schema.json_patch import PatchRejected, TooManyOperations, json_patch
from nodeagent.apiserver.machinery.schema.strategic import strategic_merge
from nodeagent.kinds import endpointslice, node, service
from nodeagent.kinds.description import formats
from nodeagent.kinds.description.address_texts import parse_ip
from nodeagent.kinds.description.decoding import TypeMismatch, duplicate_fields, normalise
from nodeagent.kinds.description.documents import Json, encode, is_deeper
from nodeagent.kinds.description.shapes import Struct
from nodeagent.kinds.description.status import ApiError
from nodeagent.wire.yaml.yaml_documents import is_long_number, plain_scalar

NODE = node.SHAPES["Node"]
LOCKED_SECONDS = 0.02
LETTERS = [chr(number) for number in range(ord("a"), ord("z"))]
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{this}: &{this} [{','.join([f'*{before}'] * 9)}]\n" for before, this in pairwise(LETTERS)
)


def within(seconds: float, megabytes: float) -> "Budget":
    return Budget(seconds, megabytes)


class Budget:
    """Processor time and growth of the process that a block may take."""

    def __init__(self, seconds: float, megabytes: float) -> None:
        self._seconds, self._megabytes = seconds, megabytes

    def __enter__(self) -> None:
        self._started = time.process_time()
        self._peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def __exit__(self, *_: object) -> None:
        assert time.process_time() - self._started < self._seconds
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self._peak) / 1024 < self._megabytes


@pytest.mark.parametrize(
    ("body", "media_type", "code"),
    [
        pytest.param("[" * 40_000, YAML, 400, id="lists in lists that never end"),
        pytest.param("- " * 40_000, YAML, 400, id="lists in lists, in blocks"),
        pytest.param("{a: " * 40_000, YAML, 400, id="maps in maps"),
        pytest.param("? " * 40_000, YAML, 400, id="keys in keys"),
        pytest.param(LAUGHS, YAML, 400, id="aliases of aliases"),
        pytest.param(f'a: &a "{"x" * 10**6}"\nb: [{",".join(["*a"] * 10**5)}]', YAML, 400, id="aliases of a long text"),
        pytest.param("a: &a [*a]", YAML, 400, id="a list in itself"),
        pytest.param(
            f"a: &a {{{','.join(f'k{n}: 1' for n in range(5000))}}}\nb: {{<<: [{','.join(['*a'] * 500)}]}}",
            YAML,
            400,
            id="merges of one map",
        ),
        pytest.param(
            "".join(f"%TAG !a{n}! tag:x\n" for n in range(20_000)) + "---\na: 1\n", YAML, 400, id="directives"
        ),
        pytest.param(f"a: {'1' * 5000}", YAML, 400, id="a long number in YAML"),
        pytest.param("a: .inf", YAML, 400, id="infinity"),
        pytest.param("a: 1\n---\nb: 1\n", YAML, 400, id="two documents"),
        pytest.param("a: !!python/object:os.x {}", YAML, 400, id="a tag of a language"),
        pytest.param("[" * 40_000, JSON, 400, id="JSON lists that never end"),
        pytest.param("[" * 101 + "]" * 101, JSON, 400, id="nested 101 deep"),
        pytest.param("[" + "1," * 100_000 + "1]", JSON, 413, id="too many values"),
        pytest.param("[" + '"",' * 1_000_000 + '""]', JSON, 413, id="a million texts"),
        pytest.param("1" * 5000, JSON, 400, id="a long number"),
        pytest.param("1e999", JSON, 400, id="a number beyond numbers"),
    ],
)
def test_a_body_that_comes_to_much_is_refused(body: str, media_type: str, code: int) -> None:
    with within(1.5, 100), pytest.raises(ApiError) as refused:
        parse(body.encode(), media_type)
    assert refused.value.code == code
    assert len(refused.value.message) < 500


@pytest.mark.parametrize(
    ("body", "media_type", "read"),
    [
        pytest.param(b"[" * 100 + b"]" * 100, JSON, None, id="nested 100 deep"),
        pytest.param(b'{"a":"' + b"[{," * 10**5 + b'"}', JSON, {"a": "[{," * 10**5}, id="brackets in a text"),
        pytest.param(b'{"a":"' + b'\\",' * 10**5 + b'"}', JSON, {"a": '",' * 10**5}, id="quotes in a text"),
        pytest.param(b'["' + b"\\\\" * 10**5 + b'",1]', JSON, ["\\" * 10**5, 1], id="backslashes in a text"),
        pytest.param(
            b"a: 1\nb: [x, 2021-01-01, 0x1f, ~, 'y']",
            YAML,
            {"a": 1, "b": ["x", "2021-01-01", 31, None, "y"]},
            id="YAML",
        ),
        pytest.param(
            b"a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: *x",
            YAML,
            {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}, "c": {"p": 1, "q": 2}},
            id="anchor and merge",
        ),
        pytest.param(b"a: {<<: [{p: 1}, {p: 2, q: 2}]}", YAML, {"a": {"p": 1, "q": 2}}, id="the first of several wins"),
        pytest.param(b"%YAML 1.1\n---\n1: yes\n=: =\n", YAML, {"1": True, "=": "="}, id="keys become texts"),
        pytest.param(b"a: [22:22, 0o17, 1e3]", YAML, {"a": ["22:22", 15, 1000.0]}, id="numbers as in manifests"),
        pytest.param(b"", YAML, None, id="nothing"),
    ],
)
def test_an_honest_body_is_read(body: bytes, media_type: str, read: Json) -> None:
    found = parse(body, media_type)
    assert is_deeper(found, 99) if body.startswith(b"[[") else found == read


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(value=VALUES)
def test_json_reads_the_same_as_yaml(value: Json) -> None:
    body = encode(value)
    assert parse(body, JSON) == value
    if b"\\" not in body and body.isascii() and b"\x7f" not in body:
        assert parse(body, YAML) == value


@given(body=st.binary(max_size=200) | st.text(alphabet="[]{}:,-&*<!|>%#'\" \n?ab1", max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for media_type in (JSON, YAML):
        with contextlib.suppress(ApiError):
            parse(body, media_type)


def test_a_map_copied_into_itself_does_not_double_for_ever() -> None:
    """As CVE-2019-1002100."""
    patch = [{"op": "copy", "from": "/a", "path": f"/a/{n}"} for n in range(100)]
    with within(1.5, 100), pytest.raises(PatchRejected, match="exceeding the limit 3145728"):
        json_patch({"a": {"b": "x" * 1000}}, patch)


def test_a_patch_has_ten_thousand_operations_at_most() -> None:
    with pytest.raises(TooManyOperations):
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
    assert json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_000) == {"a": 1}


def test_a_patch_does_not_nest_an_object_without_end() -> None:
    deeper = [{"op": "add", "path": "/a" * n, "value": {"a": 1}} for n in range(1, 300)]
    with pytest.raises(PatchRejected, match="100 deep"):
        json_patch({}, deeper)
    copies = [{"op": "copy", "from": "/a", "path": "/a" * n} for n in range(2, 99)]
    with within(1.5, 100), pytest.raises(PatchRejected):
        json_patch({"a": {"a": {}}}, copies * 20)


def test_a_patch_leaves_itself_as_it_is() -> None:
    """It is applied again when another write was faster."""
    patch: list[dict[str, Any]] = [{"op": "add", "path": "/a", "value": {}}, {"op": "add", "path": "/a/b", "value": 1}]
    assert json_patch({}, patch) == json_patch({}, patch) == {"a": {"b": 1}}
    assert patch[0]["value"] == {}


def _duplicate() -> object:
    text = b'{"first":1,"first":2,' + b",".join(b'"k%d":1' % n for n in range(50_000)) + b"}"
    return duplicate_fields(text, parse(text, JSON))


def _duplicates_below_a_long_key() -> object:
    pairs = b",".join(b'"k%d":1,"k%d":1' % (n, n) for n in range(25_000))
    text = b'{"' + b"x" * 1_000_000 + b'":{' + pairs + b"}}"
    return duplicate_fields(text, parse(text, JSON))


def _merge_by_key() -> object:
    items = [{"port": n, "protocol": "TCP"} for n in range(20_000)]
    shape = endpointslice.SHAPES["EndpointSlice"]
    old = {"metadata": {"ownerReferences": [{"uid": f"u{n}"} for n in range(20_000)]}, "ports": items}
    new = {"metadata": {"ownerReferences": [{"uid": f"v{n}"} for n in range(20_000)]}}
    order = {"$setElementOrder/ownerReferences": [{"uid": f"v{n}"} for n in range(20_000)]}
    return strategic_merge(shape, old, {"metadata": {**new["metadata"], **order}})


def _quantity() -> object:
    with pytest.raises(TypeMismatch):
        normalise(NODE, {"status": {"capacity": {"cpu": "1" * 1_000_000 + "x"}}})
    return None


def _hints() -> object:
    zones = [{"name": f"z{n}"} for n in range(30_000)]
    endpoints = [{"addresses": ["192.0.2.1"], "hints": {"forZones": zones}}]
    return list(endpointslice.validate_slice({"addressType": "IPv4", "endpoints": endpoints}))


@pytest.mark.parametrize("work", [_duplicate, _duplicates_below_a_long_key, _merge_by_key, _quantity, _hints])
def test_work_grows_no_faster_than_the_body(work: Callable[[], object]) -> None:
    with within(2, 150):
        work()


def test_a_long_merge_key_is_encoded_once() -> None:
    """Otherwise each item is encoded again for each comparison: 1.5 s in which every large write of others waited."""
    shape = endpointslice.SHAPES["EndpointSlice"]
    long = [{"uid": f"{'x' * 100_000}{number}"} for number in range(14)]
    old = {"metadata": {"ownerReferences": [*({"uid": f"a{n}"} for n in range(5000)), *long]}}
    order = [{"uid": f"a{n}"} for n in range(5000)]
    with within(1.0, 100):
        strategic_merge(shape, old, {"metadata": {"$setElementOrder/ownerReferences": order}})


MEGABYTES = 3_000_000


@pytest.mark.parametrize("part", ["a", "a.", "aa.", "a-", "1", "1.", "1:", "a/"])
@pytest.mark.parametrize(
    "look",
    [
        *(formats.dns_label, formats.dns_subdomain, formats.qualified_name, formats.label_value, formats.data_key),
        *(formats.port_name, parse_ip, plain_scalar, is_long_number),
        lambda text: normalised(NODE, {"status": {"capacity": {"cpu": text}}}),
        lambda text: normalised(NODE, {"metadata": {"creationTimestamp": f"2026-01-01T00:00:00.{text}"}}),
        lambda text: normalised(NODE, {"spec": text}),
    ],
)
def test_a_text_of_megabytes_is_not_compared_with_a_pattern(look: Callable[[str], object], part: str) -> None:
    """Python's lock is held by such a comparison, up to 0.4 s of it: no other thread goes on, the loop's neither."""
    text = part * (MEGABYTES // len(part)) + "!"
    took = []
    for _ in range(3):
        began = time.thread_time()
        look(text)
        took.append(time.thread_time() - began)
    assert min(took) < LOCKED_SECONDS


def normalised(struct: Struct, document: Json) -> None:
    with pytest.raises(TypeMismatch):
        normalise(struct, document)


NAMES = st.sampled_from(
    ["metadata", "spec", "ports", "port", "labels", "finalizers", "ownerReferences", "uid", "name", "a", ""]
)
DIRECTIVES = st.sampled_from(
    [
        "$patch",
        "$retainKeys",
        "$setElementOrder/ports",
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "a", "merge", "delete", "replace"])
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | DIRECTIVES, inner, max_size=4),
    max_leaves=12,
)
POINTERS = st.lists(st.sampled_from(["spec", "ports", "0", "1", "-", "a", "~1", ""]), max_size=4).map("/".join)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "odd"]) | LEAVES},
        optional={"path": POINTERS.map(lambda text: f"/{text}") | ANYTHING, "from": POINTERS.map(lambda text: f"/{text}"), "value": ANYTHING},
    )
    | ANYTHING,
    max_size=6,
)  # fmt: skip
SERVICE = {"metadata": {"name": "a", "finalizers": ["a"]}, "spec": {"ports": [{"port": 1}, {"port": 2}]}}


def about(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """Patches that get as far as a list that is merged item by item."""
    lists = st.fixed_dictionaries({}, optional={"ports": inner, "ownerReferences": inner, "finalizers": inner})
    return st.fixed_dictionaries({}, optional={"metadata": lists | inner, "spec": lists | inner})


@given(patch=about(ANYTHING), old=st.just(SERVICE) | about(ANYTHING))
def test_any_strategic_patch_is_merged_or_rejected(patch: Json, old: Json) -> None:
    with contextlib.suppress(PatchRejected):
        strategic_merge(service.SHAPES["Service"], old, patch)


@given(operations=OPERATIONS)
def test_any_json_patch_is_applied_or_rejected(operations: Json) -> None:
    with contextlib.suppress(PatchRejected):
        json_patch(SERVICE, operations)
    assert SERVICE["metadata"] == {"name": "a", "finalizers": ["a"]}
