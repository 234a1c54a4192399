"""Encodes an OpenAPI v2 document in protobuf: gnostic's openapi.v2.Document, which kubectl before 1.27 requests. Pure.

Field numbers are those of openapiv2/OpenAPIv2.proto in github.com/google/gnostic, for the messages that this server's document
needs. Names that start with `x-` are vendor extensions: a name, and its value as YAML, which includes JSON.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from nodeagent.kinds.description.documents import Document, Json, encode
from nodeagent.wire.protobuf import bytes_field, number_field

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
ASKED_AS: Final = (MEDIA_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""Old clients request it with an `@`, which no media type may contain; the answer has MEDIA_TYPE in any case."""

_METHODS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}


def encode_document(document: Document) -> bytes:
    """Returns the encoded document. Document: swagger=1 info=2 paths=8 definitions=9. Info: title=1 version=2. Paths: path=2.
    Definitions: additional_properties=1."""
    info = document["info"]
    return b"".join(
        (
            _text(1, document["swagger"]),
            bytes_field(2, _text(1, info["title"]) + _text(2, info["version"])),
            bytes_field(8, _named(2, document["paths"], _path_item)),
            bytes_field(9, _named(1, document["definitions"], _schema)),
        )
    )


def _schema(schema: Document) -> bytes:
    """Schema: _ref=1 format=2 description=4 required=19 additional_properties=21 type=22 items=23 properties=25
    vendor_extension=31. TypeItem: value=1. ItemsItem, AdditionalPropertiesItem: schema=1. Properties:
    additional_properties=1."""
    parts = [_text(1, schema.get("$ref")), _text(2, schema.get("format")), _text(4, schema.get("description"))]
    parts += [_text(19, name) for name in schema.get("required", ())]
    if "additionalProperties" in schema:
        parts.append(bytes_field(21, bytes_field(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(bytes_field(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(bytes_field(23, bytes_field(1, _schema(schema["items"]))))
    if "properties" in schema:
        parts.append(bytes_field(25, _named(1, schema["properties"], _schema)))
    parts.append(_extensions(31, schema))
    return b"".join(parts)


def _path_item(item: Document) -> bytes:
    """PathItem: one field per method, parameters=9."""
    parts = [bytes_field(number, _operation(item[method])) for method, number in _METHODS.items() if method in item]
    return b"".join(parts) + _parameters(9, item.get("parameters", ()))


def _operation(operation: Document) -> bytes:
    """Operation: produces=6 consumes=7 parameters=8 responses=9 vendor_extension=13. Responses: response_code=1."""
    return b"".join(
        (
            *(_text(6, media) for media in operation["produces"]),
            *(_text(7, media) for media in operation["consumes"]),
            _parameters(8, operation["parameters"]),
            bytes_field(9, _named(1, operation["responses"], _response)),
            _extensions(13, operation),
        )
    )


def _response(response: Document) -> bytes:
    """ResponseValue: response=1. Response: description=1 schema=2. SchemaItem: schema=1."""
    encoded = _text(1, response["description"]) + bytes_field(2, bytes_field(1, _schema(response["schema"])))
    return bytes_field(1, encoded)


def _parameters(number: int, parameters: Iterable[Document]) -> bytes:
    """ParametersItem: parameter=1. Parameter: body_parameter=1 non_body_parameter=2."""
    return b"".join(bytes_field(number, bytes_field(1, _parameter(parameter))) for parameter in parameters)


def _parameter(parameter: Document) -> bytes:
    """BodyParameter: name=2 in=3 required=4 schema=5. NonBodyParameter: query_parameter_sub_schema=3
    path_parameter_sub_schema=4, both with required=1 in=2 name=4, and type=6 in the one, type=5 in the other."""
    if parameter["in"] == "body":
        encoded = _text(2, parameter["name"]) + _text(3, "body") + _true(4, parameter)
        return bytes_field(1, encoded + bytes_field(5, _schema(parameter["schema"])))
    form, kind = (3, 6) if parameter["in"] == "query" else (4, 5)
    encoded = (
        _true(1, parameter) + _text(2, parameter["in"]) + _text(4, parameter["name"]) + _text(kind, parameter["type"])
    )
    return bytes_field(2, bytes_field(form, encoded))


def _extensions(number: int, owner: Mapping[str, Json]) -> bytes:
    """NamedAny: name=1 value=2. Any: yaml=2."""
    found = {name: value for name, value in owner.items() if name.startswith("x-")}
    return _named(number, found, lambda value: bytes_field(2, encode(value)))


def _named(number: int, entries: Mapping[str, Json], encode_value: Callable[[Json], bytes]) -> bytes:
    """Encodes a map as gnostic does: pairs in order, each with name=1 and value=2."""
    return b"".join(
        bytes_field(number, _text(1, name) + bytes_field(2, encode_value(value))) for name, value in entries.items()
    )


def _true(number: int, parameter: Document) -> bytes:
    return number_field(number, 1) if parameter.get("required") else b""


def _text(number: int, text: str | None) -> bytes:
    return bytes_field(number, text.encode()) if text else b""
