"""Reads what clients send, bounded, and decodes it into a document."""

import json
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Final, Protocol

from nodeagent.apiserver.api.yaml_bodies import YamlRefused, read_yaml
from nodeagent.apiserver.machinery.bounds import check_json
from nodeagent.apiserver.machinery.schema import protobuf
from nodeagent.kinds.description.documents import Document, Json, decode
from nodeagent.kinds.description.shapes import Struct
from nodeagent.kinds.description.shared import DELETE_OPTIONS
from nodeagent.kinds.description.status import bad_request, body_too_large, unsupported_media_type
from nodeagent.wire.unreadable import UNREADABLE

LIMIT_BYTES: Final = 3 * 1024 * 1024
_EXCERPT_BYTES: Final = 100
JSON: Final = "application/json"
YAML: Final = "application/yaml"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
_WORK: Final = {YAML: 8, APPLY_PATCH: 8, protobuf.MEDIA_TYPE: 4}
"""How many bytes of JSON are as much work as one byte of this media type, if more than 1."""


class ObjectKind(Protocol):
    """The kind that a body is decoded as: a resource, or a kind that is never stored."""

    @property
    def kind(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def group_version(self) -> str: ...
    @property
    def struct(self) -> Struct: ...


@dataclass(frozen=True, slots=True)
class UnstoredKind:
    """A kind that clients send and that is not stored."""

    kind: str
    group: str
    version: str
    struct: Struct

    @property
    def group_version(self) -> str:
        """`authentication.k8s.io/v1`."""
        return f"{self.group}/{self.version}"


async def read_body(chunks: AsyncIterable[bytes], announced: int | None) -> bytes:
    """Returns the whole body. `announced` is its Content-Length. Raises ApiError 413 if either is more than 3 MiB."""
    if announced is not None and announced > LIMIT_BYTES:
        raise body_too_large(LIMIT_BYTES)
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > LIMIT_BYTES:
            raise body_too_large(LIMIT_BYTES)
        parts.append(chunk)
    return b"".join(parts)


def size_of(body: bytes, media_type: str) -> int:
    """Returns about how many bytes of JSON are as much work; YAML with an alias counts as the largest body."""
    if media_type in (YAML, APPLY_PATCH) and b"*" in body:
        return LIMIT_BYTES
    return len(body) * _WORK.get(media_type, 1)


def parse(body: bytes, media_type: str) -> Json:
    """Decodes JSON, or YAML if `media_type` says so. Raises ApiError 400, 413, 415."""
    if media_type in ("", JSON) or media_type in PATCHES[:3]:
        check_json(body)
        try:
            return decode(body)
        except (ValueError, *UNREADABLE) as error:
            raise bad_request(f"error decoding request body: {error}") from None
    if media_type in (YAML, APPLY_PATCH):
        try:
            return read_yaml(body)
        except YamlRefused as error:
            raise bad_request(f"error converting YAML to JSON: {error}") from None
    raise unsupported_media_type((JSON, YAML))


def parse_object(body: bytes, media_type: str, resource: ObjectKind) -> Document:
    """Decodes a body of any supported media type as an object of this kind. Raises ApiError 400, 415."""
    if media_type == protobuf.MEDIA_TYPE and protobuf.supports(resource.struct):
        try:
            return as_object(protobuf.read_object(resource.struct, body), resource, body)
        except protobuf.NotProtobuf as error:
            raise bad_request(f"error decoding protobuf: {error}") from None
    if media_type not in ("", JSON, YAML, APPLY_PATCH):
        raise unsupported_media_type((JSON, YAML, protobuf.MEDIA_TYPE))
    return as_object(parse(body, media_type), resource, body)


def parse_delete_options(body: bytes, media_type: str) -> Document:
    """Returns the DeleteOptions of a body; an empty document if the body is empty. Raises ApiError 400, 415."""
    if not body.strip():
        return {}
    if media_type == protobuf.MEDIA_TYPE:
        try:
            return protobuf.read_object(DELETE_OPTIONS, body)
        except protobuf.NotProtobuf as error:
            raise bad_request(f"error decoding protobuf: {error}") from None
    given = parse(body, media_type)
    if not isinstance(given, dict):
        raise bad_request("the body of a deletion is a DeleteOptions object")
    return given


def as_object(value: Json, resource: ObjectKind, body: bytes) -> Document:
    """Returns `value` if it is an object of this kind. Raises ApiError 400 otherwise."""
    if not isinstance(value, dict):
        kind = {str: "string", list: "array", bool: "bool"}.get(type(value), "number")
        go = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get version/kind; json"
            f" parse error: json: cannot unmarshal {kind} into Go value of type {go} ({_excerpt(value, body)})"
        )
    kind, version = value.get("kind") or resource.kind, value.get("apiVersion") or resource.group_version
    if version != resource.group_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.group_version})"
        )
    if kind != resource.kind:
        raise bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: no kind "{kind}" is'
            f' registered for version "{resource.group_version}"'
        )
    return value


def _excerpt(value: Json, body: bytes) -> str:
    canonical = body.strip() or json.dumps(value).encode()
    return canonical[:_EXCERPT_BYTES].hex() + (" ..." if len(canonical) > _EXCERPT_BYTES else "")
