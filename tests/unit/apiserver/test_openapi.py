"""What is published about the kinds hangs together, in each version and encoding."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from nodeagent.apiserver.machinery.schema.openapi import OpenApi
from nodeagent.kinds.catalog import all_kinds

PUBLISHED = OpenApi(all_kinds())
V2 = msgspec.json.decode(PUBLISHED.document("v2") or b"")


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for below in value.values():
            yield from references(below)
    elif isinstance(value, list):
        for below in value:
            yield from references(below)


@pytest.mark.parametrize("row", all_kinds().rows, ids=lambda row: f"{row.group_version} {row.kind}")
def test_every_kind_has_one_definition_and_says_what_its_patch_understands(row: Any) -> None:
    gvk = {"group": row.group, "version": row.version, "kind": row.kind}
    kinds = [d for d in V2["definitions"].values() if gvk in d.get("x-kubernetes-group-version-kind", [])]
    assert len(kinds) == 1
    patches = [item["patch"] for item in V2["paths"].values() if "patch" in item]
    own = [patch for patch in patches if patch["x-kubernetes-group-version-kind"] == gvk]
    assert len(own) == 1 + row.has_status
    for patch in own:
        assert {"dryRun", "fieldManager", "fieldValidation"} <= {p["name"] for p in patch["parameters"]}


def test_references_lead_to_definitions() -> None:
    assert set(references(V2)) <= {f"#/definitions/{name}" for name in V2["definitions"]}


def test_lists_say_how_they_merge() -> None:
    ports = V2["definitions"]["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"]
    assert (ports["x-kubernetes-patch-strategy"], ports["x-kubernetes-patch-merge-key"]) == ("merge", "port")
    assert ports["x-kubernetes-list-map-keys"] == ["port", "protocol"]


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(field number, content) of a message whose fields are all messages, strings or single-byte numbers."""

    def varint(position: int) -> tuple[int, int]:
        value = shift = 0
        while data[position] > 0x7F:
            value |= (data[position] & 0x7F) << shift
            position, shift = position + 1, shift + 7
        return value | data[position] << shift, position + 1

    position = 0
    while position < len(data):
        key, position = varint(position)
        if key & 7:
            length, position = varint(position)
        else:
            length = 1
        yield key >> 3, data[position : position + length]
        position += length


def field(data: bytes, number: int) -> bytes:
    return next(content for found, content in messages(data) if found == number)


def said(schema: bytes) -> str:
    """The description, empty where it is missing."""
    return b"".join(content for number, content in messages(schema) if number == 4).decode()


def test_both_encodings_of_version_2_say_the_same() -> None:
    # Document.definitions is 9, .paths 8; a pair of a map has its name in 1 and its value in 2 (gnostic, OpenAPIv2.proto).
    whole = PUBLISHED.document("v2.protobuf") or b""
    definitions = {field(pair, 1).decode(): field(pair, 2) for _, pair in messages(field(whole, 9))}
    assert list(definitions) == list(V2["definitions"])
    assert [field(pair, 1).decode() for _, pair in messages(field(whole, 8))] == list(V2["paths"])
    for name, schema in definitions.items():
        expected = V2["definitions"][name]
        # Schema: description 4, required 19, properties 25, vendor_extension 31.
        assert said(schema) == expected.get("description", "")
        assert [c.decode() for n, c in messages(schema) if n == 19] == expected.get("required", [])
        properties = {field(pair, 1).decode(): field(pair, 2) for _, pair in messages(field(schema, 25))}
        assert {n: said(p) for n, p in properties.items()} == {
            n: p.get("description", "") for n, p in expected["properties"].items()
        }
        extensions = [field(content, 1).decode() for number, content in messages(schema) if number == 31]
        assert extensions == [key for key in expected if key.startswith("x-")]
