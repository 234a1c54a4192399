"""The structs of the kinds as OpenAPI schemas, in the two dialects in which Kubernetes publishes them. Pure.

Both have the same content: fields, their types, and how lists and maps merge. They differ in how schemas refer to each other,
and only version 3 has defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.shapes import Field, ListOf, MapOf, Scalar, Shape, Struct

_SCALARS: Final[Mapping[Scalar, Document]] = {
    Scalar.STRING: {"type": "string"},
    Scalar.INT32: {"type": "integer", "format": "int32"},
    Scalar.INT64: {"type": "integer", "format": "int64"},
    Scalar.BOOL: {"type": "boolean"},
    Scalar.BYTES: {"type": "string", "format": "byte"},
    Scalar.TIME: {"type": "string", "format": "date-time"},
    Scalar.MICRO_TIME: {"type": "string", "format": "date-time"},
}
_TYPE_META: Final[Document] = {
    "apiVersion": {
        "type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an object.",
    },
    "kind": {
        "type": "string",
        "description": "Kind is a string value representing the REST resource this object represents.",
    },
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between versions of OpenAPI. `reference_prefix`: the text before a definition's name in a `$ref`."""

    reference_prefix: str
    has_defaults: bool
    """If set, a `$ref` is wrapped, because it may have no siblings, and missing values get a `default`."""
    scalars: Mapping[Scalar, Document]

    def reference(self, struct: Struct) -> Document:
        """Returns a schema that refers to that of `struct`."""
        return {"$ref": f"{self.reference_prefix}{struct.definition}"}


V2: Final = Dialect(
    "#/definitions/",
    has_defaults=False,
    scalars={
        **_SCALARS,
        Scalar.QUANTITY: {"type": "string"},
        Scalar.INT_OR_STRING: {"type": "string", "format": "int-or-string"},
        # Without a type and properties, any value is valid.
        Scalar.ANY: {},
    },
)
V3: Final = Dialect(
    "#/components/schemas/",
    has_defaults=True,
    scalars={
        **_SCALARS,
        Scalar.QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
        Scalar.INT_OR_STRING: {
            "type": "string",
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        },
        Scalar.ANY: {"x-kubernetes-preserve-unknown-fields": True},
    },
)


def add_kind(struct: Struct, gvk: Document, schemas: Document, dialect: Dialect) -> None:
    """Adds the schema of a kind, and those that it refers to, to `schemas`, by the names of their definitions."""
    _add(struct, schemas, dialect)
    schema = schemas[struct.definition]
    schema["x-kubernetes-group-version-kind"] = [gvk]
    schema["properties"] = {**_TYPE_META, **schema["properties"]}


def _add(struct: Struct, schemas: Document, dialect: Dialect) -> None:
    if struct.definition in schemas:
        return
    properties: Document = {}
    schema: Document = {"type": "object", **_described(struct.doc), "properties": properties}
    schemas[struct.definition] = schema
    needed = [field.name for field in struct.fields.values() if field.required]
    if needed:
        schema["required"] = needed
    for field in struct.fields.values():
        properties[field.name] = {**_field_schema(field, schemas, dialect), **_described(field.doc)}


def _field_schema(field: Field, schemas: Document, dialect: Dialect) -> Document:
    shape = field.shape
    if isinstance(shape, Struct):
        reference = _schema(shape, schemas, dialect)
        if not dialect.has_defaults:
            return reference
        wrapped: Document = {"allOf": [reference]}
        return wrapped if field.pointer else {"default": {}, **wrapped}
    schema = _schema(shape, schemas, dialect)
    if field.default and dialect.has_defaults:
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


def _schema(shape: Shape, schemas: Document, dialect: Dialect) -> Document:
    if isinstance(shape, Struct):
        _add(shape, schemas, dialect)
        return dialect.reference(shape)
    if isinstance(shape, ListOf):
        return {"type": "array", "items": _item(shape.element, schemas, dialect)}
    if isinstance(shape, MapOf):
        return {"type": "object", "additionalProperties": _item(shape.value, schemas, dialect)}
    return dict(dialect.scalars[shape])


def _item(shape: Shape, schemas: Document, dialect: Dialect) -> Document:
    schema = _schema(shape, schemas, dialect)
    if not dialect.has_defaults:
        return schema
    return {"default": {}, "allOf": [schema]} if isinstance(shape, Struct) else {**schema, "default": ""}


def _described(doc: str) -> Document:
    return {"description": doc} if doc else {}
