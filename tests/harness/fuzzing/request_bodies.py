"""What clients of our API server send: bodies in three encodings, patches and selectors. Refused is only what the client did wrong."""

import json

from nodeagent.apiserver.api import bodies
from nodeagent.apiserver.machinery.schema.json_patch import PatchRejected, TooManyOperations, json_patch
from nodeagent.apiserver.machinery.schema.protobuf import MEDIA_TYPE
from nodeagent.apiserver.machinery.schema.protobuf_writing import write_object
from nodeagent.apiserver.machinery.schema.strategic import merge_patch, strategic_merge
from nodeagent.apiserver.machinery.selectors import parse_fields, parse_labels
from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.decoding import TypeMismatch, normalise
from nodeagent.kinds.description.documents import encode
from nodeagent.kinds.description.status import ApiError
from tests.harness.fuzzing import kubeconfigs, watches
from tests.harness.fuzzing.mutation import Target, refused_by

SERVICE, SLICE = (next(row for row in all_kinds().rows if row.kind == kind) for kind in ("Service", "EndpointSlice"))
STRUCTS = {row.kind: row.struct for row in all_kinds().rows}
LIVE = json.loads((watches.RECORDINGS / "service-create.json").read_bytes())["response"]["body"]
_SLICE = json.loads((watches.RECORDINGS / "kubernetes-endpointslice.json").read_bytes())["response"]["body"]
BODIES = [json.dumps(body).encode() for body in (LIVE, _SLICE)]
PATCHES = (
    b'{"spec":{"ports":[{"port":80,"name":"a"},{"port":81,"$patch":"delete"}],"$setElementOrder/ports":[{"port":80}]}}',
    b'{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"labels":{"$retainKeys":["a"],"a":null}},"$patch":"replace"}',
    b'[{"op":"copy","from":"/spec/ports/0","path":"/spec/ports/-"},{"op":"move","from":"/spec/type","path":"/a~1b"}]',
    b'[{"op":"test","path":"/spec/ports/0/port","value":80},{"op":"remove","path":"/metadata/uid"},{"op":"add","path":"","value":{}}]',
)
_PATCH_TOKENS = [
    b'"$patch":"merge"',
    b'"$patch":',
    b'"$setElementOrder/ports":',
    b'"$retainKeys":',
    b"/-",
    b"~0",
    b"~2",
    b'"op":"replace"',
]


def _read(body: bytes, media_type: str) -> None:
    for row in (SERVICE, SLICE):
        with refused_by(ApiError, TypeMismatch):
            encode(normalise(row.struct, bodies.parse_object(body, media_type, row)))


def _check_json(body: bytes) -> None:
    _read(body, bodies.JSON)


def _check_yaml(body: bytes) -> None:
    _read(body, bodies.YAML)


def _check_protobuf(body: bytes) -> None:
    _read(body, MEDIA_TYPE)


def _check_patch(body: bytes) -> None:
    with refused_by(ApiError):
        patch = bodies.parse(body, bodies.JSON_PATCH)
        with refused_by(PatchRejected, TooManyOperations):
            encode(json_patch(LIVE, patch))
        if isinstance(patch, dict):
            encode(merge_patch(LIVE, patch))
            with refused_by(PatchRejected):
                encode(strategic_merge(SERVICE.struct, LIVE, patch))


def _check_selector(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with refused_by(ApiError):
        parse_labels(text).matches({"a": "b", "n": "7"})
    with refused_by(ApiError):
        parse_fields(text, ("metadata.name",), lambda field: f"{field} is unknown")


TARGETS = (
    Target("request bodies in JSON", BODIES, watches.TOKENS, _check_json),
    Target("request bodies in YAML", BODIES, kubeconfigs.TOKENS, _check_yaml),
    Target(
        "request bodies in protobuf",
        [write_object(STRUCTS, body) for body in BODIES],
        [
            b"k8s\0",
            b"\x0a",
            b"\x12",
            b"\x80" * 9,
            b"\xff" * 10 + b"\x01",
            b"\x1a\0",
            b"\x08\x80\x80\x80\x80\x08",
            b"\x0a\xff\xff\xff\xff\x0f",
        ],
        _check_protobuf,
    ),
    Target("patches", PATCHES, [*watches.TOKENS, *_PATCH_TOKENS], _check_patch),
    Target(
        "selectors",
        (b"a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3", b"metadata.name=web,metadata.name!=a\\,b"),
        [b"=", b"!=", b"==", b" in (", b"notin", b")", b",", b">", b"<", b"!", b"\\", b"9" * 70, b"\xff", b"\0"],
        _check_selector,
    ),
)
