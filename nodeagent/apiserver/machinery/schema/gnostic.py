"""Encodes an OpenAPI v2 document in protobuf: gnostic's openapi.v2.Document, which kubectl before 1.27 requests. Pure.

Names that start with `x-` are vendor extensions: a name, and its value as YAML, which includes JSON.
"""

from typing import Final

from nodeagent.apiserver.machinery.schema.protobuf_writing import message
from nodeagent.kinds.description.documents import Document, encode
from nodeagent.kinds.description.notation import read

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
ASKED_AS: Final = (MEDIA_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
"""Old clients request it with an `@`, which no media type may contain; the answer has MEDIA_TYPE in any case."""

_SHAPES: Final = read(
    r"""
Any = openapi.v2; yaml string #2
Document = openapi.v2; swagger string #1; info Info #2; paths {PathItem} #8.2; definitions {Schema} #9.1
Info = openapi.v2; title string #1; version string #2
PathItem = openapi.v2
  get Operation #2; put Operation #3; post Operation #4; delete Operation #5; options Operation #6; head Operation #7; patch Operation #8
  parameters [ParametersItem] #9
Operation = openapi.v2
  produces [string] #6; consumes [string] #7; parameters [ParametersItem] #8; responses {ResponseValue} #9.1; vendorExtension {Any} #13
ResponseValue = openapi.v2; response Response #1
Response = openapi.v2; description string #1; schema Schema #2.1
ParametersItem = openapi.v2; bodyParameter BodyParameter #1.1; nonBodyParameter NonBodyParameter #1.2
BodyParameter = openapi.v2; name string #2; in string #3; required bool #4; schema Schema #5
NonBodyParameter = openapi.v2; query QueryParameter #3; path PathParameter #4
QueryParameter = openapi.v2; required bool #1; in string #2; name string #4; type string #6
PathParameter = openapi.v2; required bool #1; in string #2; name string #4; type string #5
Schema = openapi.v2
  $ref string #1; format string #2; description string #4; required [string] #19; additionalProperties Schema #21.1; type string #22.1
  items Schema #23.1; properties {Schema} #25.1; vendorExtension {Any} #31
""",
    {},
)
"""The messages of openapiv2/OpenAPIv2.proto in github.com/google/gnostic, as far as this server's document needs them."""


def encode_document(document: Document) -> bytes:
    """Returns the encoded document."""
    paths = {path: _path_item(item) for path, item in document["paths"].items()}
    definitions = {name: _schema(schema) for name, schema in document["definitions"].items()}
    return message(_SHAPES["Document"], {**document, "paths": paths, "definitions": definitions})


def _path_item(item: Document) -> Document:
    methods = {method: _operation(operation) for method, operation in item.items() if method != "parameters"}
    return {**methods, "parameters": [_parameter(one) for one in item.get("parameters", ())]}


def _operation(operation: Document) -> Document:
    responses = {
        code: {"response": {**response, "schema": _schema(response["schema"])}}
        for code, response in operation["responses"].items()
    }
    parameters = [_parameter(one) for one in operation["parameters"]]
    return {**operation, **_extensions(operation), "parameters": parameters, "responses": responses}


def _parameter(parameter: Document) -> Document:
    if parameter["in"] == "body":
        return {"bodyParameter": {**parameter, "schema": _schema(parameter["schema"])}}
    return {"nonBodyParameter": {parameter["in"]: parameter}}


def _schema(schema: Document) -> Document:
    made = {**schema, **_extensions(schema)}
    made |= {name: _schema(schema[name]) for name in ("items", "additionalProperties") if name in schema}
    if "properties" in schema:
        made["properties"] = {name: _schema(field) for name, field in schema["properties"].items()}
    return made


def _extensions(owner: Document) -> Document:
    found = {name: {"yaml": encode(value).decode()} for name, value in owner.items() if name.startswith("x-")}
    return {"vendorExtension": found}
