"""Decoding, patching and ownership follow from the shape of a kind."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.apiserver.machinery import managed
from nodeagent.apiserver.machinery.schema.fieldsets import FieldSet, from_fields_v1, set_fields, to_fields_v1
from nodeagent.apiserver.machinery.schema.json_patch import PatchRejected, json_patch
from nodeagent.apiserver.machinery.schema.protobuf import NotProtobuf, read_object
from nodeagent.apiserver.machinery.schema.strategic import merge_patch, strategic_merge
from nodeagent.kinds import endpointslice, pod
from nodeagent.kinds import service as service_kind
from nodeagent.kinds.description.decoding import TypeMismatch, duplicate_fields, normalise
from nodeagent.kinds.description.notation import read

SERVICE = service_kind.SHAPES["Service"]
SLICE = endpointslice.SHAPES["EndpointSlice"]
POD = pod.SHAPES["Pod"]


def test_fields_come_in_wire_order_and_zero_values_are_left_out() -> None:
    given_document = {
        "spec": {"type": "ClusterIP", "externalName": "", "ports": [{"port": 80}]},
        "metadata": {"labels": {}},
    }
    assert normalise(SERVICE, given_document) == {
        "metadata": {},
        "spec": {"ports": [{"port": 80, "targetPort": 0}], "type": "ClusterIP"},
        "status": {"loadBalancer": {}},
    }
    assert list(normalise(SERVICE, given_document)) == ["metadata", "spec", "status"]


def test_a_pointer_keeps_its_zero_value() -> None:
    found = normalise(SLICE, {"endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": False}}]})
    assert found["endpoints"][0]["conditions"] == {"ready": False}
    assert (found["ports"], found["addressType"]) == (None, "")


def test_unknown_fields_are_dropped_and_named_by_their_path() -> None:
    unknown: list[str] = []
    body = {"kind": "Service", "apiVersion": "v1", "colour": 1, "spec": {"ports": [{"port": 80, "size": 2}]}}
    assert "colour" not in normalise(SERVICE, body, unknown)
    assert unknown == ["colour", "spec.ports[0].size"] or sorted(unknown) == ["colour", "spec.ports[0].size"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"ports": [{"port": "http"}]},
            "json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32",
            id="string for a number",
        ),
        pytest.param(
            {"ports": {"port": 80}},
            "json: cannot unmarshal object into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort",
            id="object for a list",
        ),
        pytest.param(
            {"selector": {"a": 1}},
            "json: cannot unmarshal number into Go struct field ServiceSpec.spec.selector of type string",
            id="number in a map of strings",
        ),
        pytest.param(
            {"ports": [{"port": 2**31}]},
            "json: cannot unmarshal number into Go struct field ServicePort.spec.ports.port of type int32",
            id="number out of range",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_named_as_go_names_it(spec: Any, message: str) -> None:
    with pytest.raises(TypeMismatch) as found:
        normalise(SERVICE, {"spec": spec})
    assert str(found.value) == message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "status", "ports", "port", "name", "labels", "selector", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(document=st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), JSON))
def test_any_document_is_decoded_or_refused_and_decoding_twice_changes_nothing(document: dict[str, Any]) -> None:
    try:
        once = normalise(SERVICE, document)
    except TypeMismatch:
        return
    assert normalise(SERVICE, once) == once


def test_repeated_keys_are_found_with_any_spacing() -> None:
    assert duplicate_fields(b'{"a" :1,"a":2}', {"a": 2}) == ["a"]
    twice = b'{"a":[{"b":1},{"b":1,"b":{"c":1},"b":2}],"d":{"e":1,"e":2},"d":3}'
    assert duplicate_fields(twice, {"a": [{"b": 1}, {"b": 2}], "d": 3}) == ["a[1].b", "d.e", "d"]
    assert duplicate_fields(b'{"a":"\\":","b":{"c":1}}', {"a": '":', "b": {"c": 1}}) == []


def test_the_notation_refuses_what_it_does_not_know() -> None:
    for text in ("  name string : x", "Thing\n", "Thing = pkg : doc\n  name nonsense : x", "Thing = pkg : d\n  name\n"):
        with pytest.raises(ValueError):
            read(text, {})


PORTS = {"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}}


@pytest.mark.parametrize(
    ("patch", "ports"),
    [
        pytest.param([{"port": 80, "name": "z"}], [("z", 80), ("b", 81)], id="merges by key"),
        pytest.param([{"port": 82, "name": "c"}], [("c", 82), ("a", 80), ("b", 81)], id="new items come first"),
        pytest.param([{"port": 80, "$patch": "delete"}], [("b", 81)], id="deletes"),
        pytest.param([{"$patch": "replace"}, {"port": 1, "name": "x"}], [("x", 1)], id="replaces"),
    ],
)
def test_a_strategic_merge_of_a_list(patch: Any, ports: list[tuple[str, int]]) -> None:
    merged = strategic_merge(SERVICE, PORTS, {"spec": {"ports": patch}})
    assert [(port["name"], port["port"]) for port in merged["spec"]["ports"]] == ports


def test_strategic_directives() -> None:
    order = {"spec": {"$setElementOrder/ports": [{"port": 81}, {"port": 80}]}}
    assert [port["port"] for port in strategic_merge(SERVICE, PORTS, order)["spec"]["ports"]] == [81, 80]
    meta = {"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1", "y": "2"}}}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"], "labels": {"x": None}}}
    merged = strategic_merge(SERVICE, meta, patch)["metadata"]
    assert (set(merged["finalizers"]), merged["labels"]) == ({"b", "c"}, {"y": "2"})
    assert strategic_merge(SERVICE, meta, {"metadata": {"$patch": "replace", "name": "n"}})["metadata"] == {"name": "n"}
    assert strategic_merge(SERVICE, meta, {"metadata": {"$retainKeys": ["labels"]}})["metadata"].keys() == {"labels"}
    for wrong in ({"spec": {"ports": [{"name": "no key"}]}}, {"metadata": {"$patch": "explode"}}):
        with pytest.raises(PatchRejected):
            strategic_merge(SERVICE, PORTS, wrong)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        pytest.param({"op": "add", "path": "/a/1", "value": 9}, {"a": [1, 9, 2], "b~/": 3}, id="add into a list"),
        pytest.param({"op": "add", "path": "/a/-", "value": 9}, {"a": [1, 2, 9], "b~/": 3}, id="append"),
        pytest.param({"op": "replace", "path": "/b~0~1", "value": 4}, {"a": [1, 2], "b~/": 4}, id="escapes"),
        pytest.param({"op": "remove", "path": "/a/0"}, {"a": [2], "b~/": 3}, id="remove"),
        pytest.param({"op": "move", "from": "/a/0", "path": "/c"}, {"a": [2], "b~/": 3, "c": 1}, id="move"),
        pytest.param({"op": "copy", "from": "/a", "path": "/c"}, {"a": [1, 2], "b~/": 3, "c": [1, 2]}, id="copy"),
        pytest.param({"op": "test", "path": "/a/0", "value": 1}, {"a": [1, 2], "b~/": 3}, id="test"),
    ],
)
def test_json_patch(operation: Any, expected: Any) -> None:
    document = {"a": [1, 2], "b~/": 3}
    assert json_patch(document, [operation]) == expected
    assert document == {"a": [1, 2], "b~/": 3}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "remove", "path": "/a/7"},
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "test", "path": "/a", "value": 0},
        {"op": "test", "path": "/a/0", "value": True},
        {"op": "test", "path": "/a", "value": [True]},
        {"op": "copy", "path": "/c"},
        {"op": "move", "path": "/c", "from": None},
        {"op": "explode", "path": "/a"},
        {"path": "a"},
        {"op": "add", "path": "", "value": 3},
        "text",
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_rejected(operation: Any) -> None:
    with pytest.raises(PatchRejected):
        json_patch({"a": [1]}, [operation])


def test_a_merge_patch_removes_with_null() -> None:
    assert merge_patch({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]}) == {"a": {"c": 2}, "d": [2]}


def service(**spec: Any) -> Any:
    return normalise(SERVICE, {"metadata": {"name": "web"}, "spec": spec})


def test_an_update_takes_fields_from_their_owners() -> None:
    first = service(type="ClusterIP", ports=[{"port": 80, "protocol": "TCP"}])
    managed.track_update(SERVICE, normalise(SERVICE, {}), first, managed.Manager("Update", "a", "v1"), "t1")
    second = service(type="NodePort", ports=[{"port": 80, "protocol": "TCP"}])
    managed.track_update(SERVICE, first, second, managed.Manager("Update", "b", "v1"), "t2")
    owners = {manager.name: held.fields for manager, held in managed.read_entries(second).items()}
    assert owners["b"] == {("f:spec", "f:type")}
    assert ("f:spec", "f:type") not in owners["a"]
    third = service(type="NodePort")
    third["metadata"]["managedFields"] = second["metadata"]["managedFields"]
    managed.track_update(SERVICE, second, third, managed.Manager("Update", "b", "v1"), "t3")
    assert [manager.name for manager in managed.read_entries(third)] == ["b"]


def test_an_apply_removes_what_only_it_held() -> None:
    me = managed.Manager("Apply", "me", "v1")
    config = {"metadata": {"name": "web"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP"}]}}
    live = managed.apply(SERVICE, None, config, me, "t1", force=False)
    less = {"metadata": {"name": "web"}, "spec": {"selector": {"a": "b"}}}
    after = managed.apply(SERVICE, live, less, me, "t2", force=False)
    assert "ports" not in after["spec"] or after["spec"]["ports"] == []
    assert after["spec"]["selector"] == {"a": "b"}


LABELS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"]), max_size=3)


@given(labels=LABELS, ports=st.lists(st.integers(1, 5), unique=True, max_size=3))
def test_a_field_set_survives_its_encoding(labels: dict[str, str], ports: list[int]) -> None:
    document = {"metadata": {"labels": labels}, "spec": {"ports": [{"port": p, "protocol": "TCP"} for p in ports]}}
    fields = set_fields(SERVICE, document)
    assert from_fields_v1(to_fields_v1(fields)) == fields


PATHS = st.lists(st.sampled_from(["f:a", "f:b", 'k:{"p":1}', 'k:{"p":2}', 'v:"x"']), min_size=1, max_size=4).map(tuple)


@given(fields=st.frozensets(PATHS, max_size=6))
def test_a_field_set_survives_also_if_nobody_owns_its_containers(fields: FieldSet) -> None:
    assert from_fields_v1(to_fields_v1(fields)) == fields


def test_fields_are_in_the_order_of_kubernetes() -> None:
    """A field of its own comes first, then names by their text; keys of items by their values, numbers before texts."""
    ports = [("f:ports", f'k:{{"port":{port}}}') for port in ("100", '"9"', "20", "true", "3")]
    tree = to_fields_v1(frozenset([*ports, ("f:ports",), (*ports[0], "f:b"), (*ports[0], "f:a"), ports[0], ("f:a",)]))
    assert list(tree) == ["f:a", "f:ports"]
    assert list(tree["f:ports"]) == [".", *(f'k:{{"port":{port}}}' for port in ("3", "20", "100", '"9"', "true"))]
    assert list(tree["f:ports"][ports[0][1]]) == [".", "f:a", "f:b"]


@given(body=st.binary(max_size=60))
def test_any_bytes_are_protobuf_of_a_service_or_refused(body: bytes) -> None:
    for data in (body, b"k8s\x00" + body):
        try:
            read_object(SERVICE, data)
        except NotProtobuf:
            continue
