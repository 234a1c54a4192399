"""Objects in protobuf are read as Kubernetes writes them: field numbers as its generated.proto files have them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.apiserver.machinery.schema.protobuf import (
    NotProtobuf,
    read_object,
    supports,
)
from nodeagent.apiserver.machinery.schema.protobuf_writing import write_event, write_object
from nodeagent.kinds import serviceaccount
from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.shapes import ListOf, MapOf, Shape, Struct
from nodeagent.kinds.description.shared import ANSWERS, DELETE_OPTIONS
from tests.harness.protobuf import envelope, field

NUMBERS = json.loads(Path(__file__).with_name("proto_numbers.json").read_text())["messages"]


def known() -> dict[str, Struct]:
    """Every struct the kinds are made of, by name."""
    found: dict[str, Struct] = {}
    waiting: list[Shape] = [*ANSWERS.values(), serviceaccount.TOKEN_REQUEST, *(row.struct for row in all_kinds().rows)]
    while waiting:
        shape = waiting.pop()
        if isinstance(shape, ListOf):
            waiting.append(shape.element)
        elif isinstance(shape, MapOf):
            waiting.append(shape.value)
        elif isinstance(shape, Struct) and shape.name not in found:
            found[shape.name] = shape
            waiting.extend(below.shape for below in shape.fields.values())
    return found


STRUCTS = known()
READ = [struct for struct in STRUCTS.values() if supports(struct)]


@pytest.mark.parametrize("struct", READ, ids=lambda struct: struct.definition)
def test_every_field_has_the_number_kubernetes_gives_it(struct: Struct) -> None:
    expected = NUMBERS[struct.package][struct.published_as or struct.name]
    found: dict[str, int | str] = {named.name: number for number, named in struct.by_number.items()}
    for outer, part in struct.embedded.items():
        found |= {named.name: f"{outer}.{number}" for number, named in part.by_number.items()}
    assert found == expected
    assert set(expected) == set(struct.fields)


@pytest.mark.parametrize("struct", READ, ids=lambda struct: struct.definition)
def test_all_parts_of_a_readable_kind_are_readable(struct: Struct) -> None:
    for shape in (found.shape for found in struct.fields.values()):
        inner = shape.element if isinstance(shape, ListOf) else shape.value if isinstance(shape, MapOf) else shape
        assert not isinstance(inner, Struct) or supports(inner)


def test_all_kinds_can_be_sent_so() -> None:
    assert all(supports(row.struct) for row in all_kinds().rows)


YEAR_1 = bytes([0x82, 0x92, 0xB8, 0xC3, 0x98, 0xFE, 0xFF, 0xFF, 0xFF, 0x01])
"""-62135596798, two seconds into the year 1, as a number of protobuf."""
META = field(1, field(1, b"n"))


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        pytest.param(
            "Service",
            field(2, field(1, field(3, 80) + field(4, field(1, 1) + field(3, b"http"))) + field(23, b"PreferClose")),
            {"spec": {"ports": [{"port": 80, "targetPort": "http"}], "trafficDistribution": "PreferClose"}},
            id="a named port and a field number above 15",
        ),
        pytest.param("Secret", field(2, field(1, b"k") + field(2, b"v")), {"data": {"k": "dg=="}}, id="a map of bytes"),
        pytest.param(
            "Namespace", field(3, field(2, field(1, b"T") + field(2, b"True"))),
            {"status": {"conditions": [{"type": "T", "status": "True"}]}},
            id="conditions of a namespace",
        ),
        pytest.param(
            "IPAddress", field(2, field(1, field(2, b"services") + field(3, b"default") + field(4, b"web"))),
            {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}},
            id="the parent of an address",
        ),
        pytest.param(
            "Event", field(2, field(1, 9) + field(2, 0)) + field(10, b"hello"),
            {"eventTime": "1970-01-01T00:00:09.000000Z", "note": "hello"},
            id="a modern event with its time",
        ),
        pytest.param(
            "Lease", field(2, b"\x22\x0b\x08" + YEAR_1),
            {"spec": {"renewTime": "0001-01-01T00:00:02.000000Z"}},
            id="a time in a year of one digit",
        ),
    ],
)  # fmt: skip
def test_reading(kind: str, raw: bytes, expected: Any) -> None:
    found = read_object(STRUCTS[kind], envelope("v1", kind, META + raw))
    assert found == {"kind": kind, "apiVersion": "v1", "metadata": {"name": "n"}, **expected}


def test_delete_options() -> None:
    # meta/v1 DeleteOptions: gracePeriodSeconds 1, preconditions 2 (uid 1, resourceVersion 2), propagationPolicy 4, dryRun 5.
    raw = field(1, 5) + field(2, field(1, b"u") + field(2, b"7")) + field(4, b"Orphan") + field(5, b"All")
    assert read_object(DELETE_OPTIONS, envelope("v1", "DeleteOptions", raw)) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 5,
        "propagationPolicy": "Orphan",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "dryRun": ["All"],
    }


def test_a_kind_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(NotProtobuf):
        read_object(Struct("Unnumbered", "example", ""), envelope("v1", "Unnumbered", META))


def test_a_time_with_more_than_a_second_of_nanoseconds_is_malformed() -> None:
    too_many = b"\x10" + bytes([0x80, 0x94, 0xEB, 0xDC, 0x03])  # 10**9
    with pytest.raises(NotProtobuf):
        read_object(STRUCTS["Lease"], envelope("v1", "Lease", META + field(2, field(4, field(1, 5) + too_many))))


def test_fields_that_are_not_known_are_skipped() -> None:
    """A client may be newer than the server: so does kube-apiserver."""
    found = read_object(STRUCTS["Node"], envelope("v1", "Node", META + field(2, field(1000, b"new") + field(4, 1))))
    assert found["spec"] == {"unschedulable": True}


RECORDED = json.loads(Path(__file__).with_name("protobuf_objects.json").read_text())
"""Objects as kube-apiserver 1.36.2 gave them, in both encodings; the Pod and the Node have about every field there is."""


@pytest.mark.parametrize("name", RECORDED)
def test_protobuf_of_kube_apiserver_and_ours_read_the_same(name: str) -> None:
    row = next(row for row in all_kinds().rows if f"{row.group_version} {row.kind}" == name)
    head = {"kind": row.kind, "apiVersion": row.group_version}
    theirs = read_object(row.struct, base64.b64decode(RECORDED[name]["protobuf"]))
    unknown: list[str] = []
    assert head | normalise(row.struct, theirs) == RECORDED[name]["json"]
    assert head | normalise(row.struct, RECORDED[name]["json"], unknown) == RECORDED[name]["json"]
    assert unknown == []
    ours = write_object({row.kind: row.struct}, json.dumps(RECORDED[name]["json"]).encode())
    assert head | normalise(row.struct, read_object(row.struct, ours)) == RECORDED[name]["json"]


def test_a_list_and_a_status_are_written_with_their_fields() -> None:
    listed = {"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [{}, {}]}
    found = write_object({"Service": STRUCTS["Service"]}, json.dumps(listed).encode())
    assert found == envelope("v1", "ServiceList", field(1, field(2, b"7")) + field(2, b"") + field(2, b""))
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 100}
    assert write_object(ANSWERS, json.dumps(status).encode()) == envelope(
        "v1", "Status", field(1, b"") + field(2, b"Failure") + field(6, 100)
    )


def test_an_event_of_a_watch_is_a_frame() -> None:
    line = {"type": "ADDED", "object": {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "n"}}}
    found = write_event({"Service": STRUCTS["Service"]}, json.dumps(line).encode())
    frame = field(1, b"ADDED") + field(2, field(1, envelope("v1", "Service", META)))
    assert found == len(frame).to_bytes(4, "big") + frame
