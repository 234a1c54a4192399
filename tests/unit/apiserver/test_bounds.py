"""One bound on values for every format of a body, and an end to looking for errors."""

import contextlib
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType

import pytest

from nodeagent.apiserver.api.bodies import JSON, YAML, parse, parse_delete_options, parse_object
from nodeagent.apiserver.machinery.acceptance import check
from nodeagent.apiserver.machinery.bounds import MOST_VALUES
from nodeagent.apiserver.machinery.schema.protobuf import MEDIA_TYPE as PROTOBUF
from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.documents import Json
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.status import ApiError, FieldError, required
from tests.harness.protobuf import envelope, field

EVENTS = all_kinds().named("events")
CONFIGMAPS = all_kinds().named("configmaps")
MANAGED = b'{"f:a":' + b"{}," * 100_001 + b"{}}"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(field(1, field(13, b"") * 1_400_000), id="owner references"),
        pytest.param(field(1, b"") * 1_400_000, id="the same field again"),
        pytest.param(field(1, field(11, field(5, b"") * 1_000_000)), id="a label of a million fields"),
        pytest.param(field(1, field(17, field(7, field(1, MANAGED)))), id="JSON within protobuf"),
        pytest.param(field(6, field(3, 1) * 1_400_000), id="a time of a million fields"),
    ],
)
def test_values_in_protobuf_are_counted_before_they_are_made(raw: bytes) -> None:
    body = envelope("v1", "Event", raw)
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as refused:
            parse_object(body, PROTOBUF, EVENTS)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.code == 413
    assert most < 64 * 1024 * 1024


def test_the_body_of_a_deletion_is_counted() -> None:
    raw = field(4, b"") * 200_000
    with pytest.raises(ApiError, match="limit is 100000 values"):
        parse_delete_options(envelope("v1", "DeleteOptions", raw), PROTOBUF)


@pytest.mark.parametrize(("media_type", "opening"), [(JSON, "["), (YAML, "["), (YAML, "- ")])
def test_all_formats_have_one_bound(media_type: str, opening: str) -> None:
    items = ["1"] * (MOST_VALUES - 10)
    text = f"[{','.join(items)}]" if opening == "[" else "\n".join(f"- {item}" for item in items)
    assert len(parse(text.encode(), media_type)) == len(items)
    more = text.replace("1", "1,1,1", 10) if opening == "[" else text + "\n- 1" * 20
    with pytest.raises(ApiError) as refused:
        parse(more.encode(), media_type)
    assert refused.value.code == 413


def test_validation_ends_at_the_hundredth_error() -> None:
    looked_at = 0

    def rules(_: Json) -> Iterator[FieldError]:
        nonlocal looked_at
        while True:
            looked_at += 1
            yield required("spec")

    row = replace(CONFIGMAPS, validate=rules)
    document = {"metadata": {"name": "a", "namespace": "default", "ownerReferences": [{}] * 10}}
    with pytest.raises(ApiError) as refused:
        check(row, document, row.validate(document))
    assert refused.value.details is not None
    assert len(refused.value.details["causes"]) == 100
    assert refused.value.message.endswith("] and more")
    assert looked_at == 61


@pytest.mark.parametrize(
    "row", [row for row in all_kinds().rows if row.validate.__name__ != "_no_errors"], ids=lambda r: r.kind
)
def test_every_kind_looks_for_errors_one_by_one(row: Resource) -> None:
    """None makes a list of all of them where an object can have many."""
    many = {"finalizers": ["!"] * 1000, "labels": {f"!{n}": "" for n in range(1000)}}
    spec = {"ports": [{"port": -1}] * 1000, "taints": [{"key": "!", "effect": "?"}] * 1000, "cidrs": ["?"] * 1000}
    spec |= {
        "externalIPs": ["?"] * 1000,
        "clusterIPs": ["?"] * 1000,
        "finalizers": ["!"] * 1000,
        "podCIDRs": ["?"] * 1000,
    }
    spec |= {"containers": [{"ports": [{"containerPort": -1}] * 1000}]}
    endpoints = [{"addresses": ["?"] * 1000}]
    document = normalise(
        row.struct,
        {
            "metadata": {"name": "a", **many},
            "endpoints": endpoints,
            "addressType": "IPv4",
            "subsets": [{"addresses": [{"ip": "?"}] * 1000}],
            "data": {f"!{n}": "" for n in range(1000)},
            **({"spec": spec} if "spec" in row.struct.fields else {}),
        },
    )
    made = 0

    def counted(frame: FrameType, event: str, _: object) -> None:
        nonlocal made
        made += event == "call" and frame.f_code.co_name == "invalid"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        with contextlib.suppress(ApiError):
            check(row, row.to_stored(document), row.validate(row.to_stored(document)))
    finally:
        sys.setprofile(before)
    assert made < 400
