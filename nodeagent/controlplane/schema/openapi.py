"""OpenAPI v3 documents, one per group version: enough for `kubectl explain`, `apply` and client-side validation. Pure.

Two extensions matter to clients: `x-kubernetes-group-version-kind` on operations and schemas (which schema a resource
has), and the patch strategies on fields (how kubectl computes a strategic merge patch).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from nodeagent.controlplane.documents import Document, encode
from nodeagent.controlplane.schema.shapes import Field, ListOf, MapOf, Scalar, Shape, Struct

_SCALARS: Final[dict[Scalar, Document]] = {
    Scalar.STRING: {"type": "string"},
    Scalar.INT32: {"type": "integer", "format": "int32"},
    Scalar.INT64: {"type": "integer", "format": "int64"},
    Scalar.BOOL: {"type": "boolean"},
    Scalar.BYTES: {"type": "string", "format": "byte"},
    Scalar.TIME: {"type": "string", "format": "date-time"},
    Scalar.MICRO_TIME: {"type": "string", "format": "date-time"},
    Scalar.QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    Scalar.INT_OR_STRING: {
        "type": "string",
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    Scalar.ANY: {"x-kubernetes-preserve-unknown-fields": True},
}
_WRITES: Final = ("fieldManager", "fieldValidation", "dryRun")
_READS: Final = ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch", "timeoutSeconds")
_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)

V2_MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_DOCUMENT: Final = b"\x0a\x032.0\x12\x13\x0a\x0aKubernetes\x12\x05v1.36"
"""An OpenAPI v2 document that defines nothing: gnostic's openapi_v2.Document with swagger (field 1) and info (2: title 1,
version 2), in the one encoding that kubectl asks for. Until 1.26 kubectl does not apply without such a document; what it
finds no definition for it does not check, and this server checks every field anyway.
"""


class Described(Protocol):
    """What a resource must say to be published."""

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def namespaced(self) -> bool: ...
    @property
    def has_status(self) -> bool: ...
    @property
    def struct(self) -> Struct: ...


class GroupSource(Protocol):
    """Anything that lists its resources by group."""

    def groups(self) -> Mapping[str, Sequence[Described]]:
        """Resources by group, the core group under the empty name."""
        ...


class OpenApi:
    """The index and the documents, built when first asked for."""

    def __init__(self, catalog: GroupSource) -> None:
        self._catalog = catalog
        self._documents: dict[str, bytes] = {}

    def document(self, path: str) -> bytes | None:
        """`v3` (the index) or `v3/api/v1`, `v3/apis/GROUP/v1`; None when there is none."""
        if not self._documents:
            self._build()
        return self._documents.get(path)

    def _build(self) -> None:
        paths: Document = {}
        for group, rows in self._catalog.groups().items():
            name = f"apis/{group}/v1" if group else "api/v1"
            body = encode(_specification(name, rows))
            self._documents[f"v3/{name}"] = body
            digest = hashlib.sha512(body).hexdigest().upper()
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        self._documents["v3"] = encode({"paths": paths})


def _specification(name: str, rows: Iterable[Described]) -> Document:
    schemas: Document = {}
    paths: Document = {}
    for row in rows:
        _collect(row.struct, schemas)
        gvk = {"group": row.group, "version": row.version, "kind": row.kind}
        schema = schemas[row.struct.definition]
        schema["x-kubernetes-group-version-kind"] = [gvk]
        schema["properties"] = {
            "apiVersion": {
                "type": "string",
                "description": "APIVersion defines the versioned schema of this representation of an object.",
            },
            "kind": {
                "type": "string",
                "description": "Kind is a string value representing the REST resource this object represents.",
            },
            **schema["properties"],
        }
        paths |= _paths(f"/{name}", row, gvk)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _collect(struct: Struct, schemas: Document) -> None:
    if struct.definition in schemas:
        return
    properties: Document = {}
    schema: Document = {"type": "object", "description": struct.doc, "properties": properties}
    schemas[struct.definition] = schema
    needed = [field.name for field in struct.fields.values() if field.required]
    if needed:
        schema["required"] = needed
    for field in struct.fields.values():
        properties[field.name] = {**_field_schema(field, schemas), "description": field.doc}


def _field_schema(field: Field, schemas: Document) -> Document:
    shape = field.shape
    if isinstance(shape, Struct):
        # A $ref has no siblings in OpenAPI 3.0, so Kubernetes wraps it to add the description and a default.
        wrapped: Document = {"allOf": [_schema(shape, schemas)]}
        return wrapped if field.pointer else {"default": {}, **wrapped}
    schema = _schema(shape, schemas)
    if field.default:
        schema["default"] = field.default
    if isinstance(shape, ListOf):
        schema["x-kubernetes-list-type"] = "map" if shape.keys else "set" if shape.is_set else "atomic"
        if shape.keys:
            schema["x-kubernetes-list-map-keys"] = list(shape.keys)
        if shape.merge_key is not None:
            schema["x-kubernetes-patch-strategy"] = "merge"
            if shape.merge_key:
                schema["x-kubernetes-patch-merge-key"] = shape.merge_key
    if isinstance(shape, MapOf) and shape.atomic:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _schema(shape: Shape, schemas: Document) -> Document:
    if isinstance(shape, Struct):
        _collect(shape, schemas)
        return {"$ref": f"#/components/schemas/{shape.definition}"}
    if isinstance(shape, ListOf):
        return {"type": "array", "items": _item(shape.element, schemas)}
    if isinstance(shape, MapOf):
        return {"type": "object", "additionalProperties": _item(shape.value, schemas)}
    return dict(_SCALARS[shape])


def _item(shape: Shape, schemas: Document) -> Document:
    schema = _schema(shape, schemas)
    return {"default": {}, "allOf": [schema]} if isinstance(shape, Struct) else {**schema, "default": ""}


def _paths(root: str, row: Described, gvk: Document) -> Document:
    base = f"{root}/namespaces/{{namespace}}/{row.plural}" if row.namespaced else f"{root}/{row.plural}"
    one = f"{base}/{{name}}"
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{row.struct.definition}"}}}

    def operation(action: str, parameters: Iterable[str], *, body: Document | None = None) -> Document:
        found: Document = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
            "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in parameters],
            "responses": {"200": {"description": "OK", "content": content}},
        }
        return {**found, "requestBody": {"required": True, "content": body}} if body else found

    patch = {media: {"schema": {"type": "object"}} for media in _PATCHES}
    found: Document = {
        base: {
            "get": operation("list", _READS),
            "post": operation("post", _WRITES, body=content),
            "delete": operation("deletecollection", _READS),
        },
        one: {
            "get": operation("get", ()),
            "put": operation("put", _WRITES, body=content),
            "patch": operation("patch", (*_WRITES, "force"), body=patch),
            "delete": operation("delete", ("gracePeriodSeconds", "propagationPolicy", "dryRun")),
        },
    }
    if row.namespaced:
        found[f"{root}/{row.plural}"] = {"get": operation("list", _READS)}
    if row.has_status:
        found[f"{one}/status"] = {
            "get": operation("get", ()),
            "put": operation("put", _WRITES, body=content),
            "patch": operation("patch", (*_WRITES, "force"), body=patch),
        }
    return found
