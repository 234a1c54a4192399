"""Writes objects in Kubernetes' protobuf encoding, with the field numbers of the schemas. Pure.

Only fields of the document are written. kube-apiserver also writes most zero values, which is equivalent for readers.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

import msgspec

from nodeagent.apiserver.machinery.schema.protobuf import MAGIC
from nodeagent.kinds.description.documents import Document, Json, decode, encode
from nodeagent.kinds.description.shapes import Field, ListOf, MapOf, Scalar, Shape, Struct
from nodeagent.kinds.description.shared import LIST_META
from nodeagent.wire.protobuf import bytes_field, number_field

_NANOSECONDS: Final = 1000
"""In a microsecond."""


class _Listed(msgspec.Struct):
    """A list whose items are decoded one by one."""

    metadata: msgspec.Raw
    items: list[msgspec.Raw] | None


class _Typed(msgspec.Struct):
    kind: str
    apiVersion: str  # noqa: N815 - the field's name


class _Watched(msgspec.Struct):
    type: str
    object: msgspec.Raw


_listed: Final = msgspec.json.Decoder(_Listed)
_typed: Final = msgspec.json.Decoder(_Typed)
_watched: Final = msgspec.json.Decoder(_Watched)


def write_object(structs: Mapping[str, Struct], body: bytes) -> bytes:
    """Encodes a JSON object, or a list of objects, as `k8s\\0` and a runtime.Unknown. `structs`: the possible kinds.

    Raises KeyError for another kind.
    """
    found = _typed.decode(body)
    of_list = structs.get(found.kind.removesuffix("List")) if found.kind.endswith("List") else None
    raw = _list(of_list, body) if of_list is not None else message(structs[found.kind], decode(body))
    header = bytes_field(1, found.apiVersion.encode()) + bytes_field(2, found.kind.encode())
    return MAGIC + bytes_field(1, header) + bytes_field(2, raw)


def write_event(structs: Mapping[str, Struct], line: bytes) -> bytes:
    """Encodes a line of a watch as a frame: a length in four bytes, and a meta/v1 WatchEvent. Raises KeyError as above."""
    event = _watched.decode(line)
    frame = bytes_field(1, event.type.encode()) + bytes_field(2, bytes_field(1, write_object(structs, event.object)))
    return len(frame).to_bytes(4, "big") + frame


def _list(struct: Struct, body: bytes) -> bytes:
    found = _listed.decode(body)
    items = (bytes_field(2, message(struct, decode(item))) for item in found.items or ())
    return b"".join((bytes_field(1, message(LIST_META, decode(found.metadata))), *items))


def message(struct: Struct, document: Document) -> bytes:
    """Encodes the fields of a document in canonical form. Fields that the struct does not have are left out."""
    parts: list[bytes] = []
    nested: dict[int, list[bytes]] = {}
    for name, value in document.items():
        field = struct.fields.get(name)
        if field is None or value is None:
            continue
        (nested.setdefault(field.within, []) if field.within else parts).extend(_field(field, value))
    parts += [bytes_field(number, b"".join(inner)) for number, inner in nested.items()]
    return b"".join(parts)


def _field(field: Field, value: Json) -> Iterator[bytes]:
    shape, number = field.shape, field.number
    if isinstance(shape, ListOf):
        for item in value:
            yield _value(number, shape.element, item)
    elif isinstance(shape, MapOf):
        for key, item in value.items():
            yield bytes_field(number, bytes_field(1, key.encode()) + _value(2, shape.value, item))
    else:
        yield _value(number, shape, value)


def _value(number: int, shape: Shape, value: Json) -> bytes:
    if isinstance(shape, Struct):
        return bytes_field(number, message(shape, value))
    if shape is Scalar.STRING:
        return bytes_field(number, value.encode())
    if shape in (Scalar.INT32, Scalar.INT64, Scalar.BOOL):
        return number_field(number, int(value))
    assert isinstance(shape, Scalar), "lists and maps have no lists or maps as elements"
    return bytes_field(number, _LEAVES[shape](value))


def _time(text: str) -> bytes:
    moment = datetime.fromisoformat(text)
    return number_field(1, int(moment.timestamp() // 1)) + number_field(2, moment.microsecond * _NANOSECONDS)


def _int_or_string(value: int | str) -> bytes:
    if isinstance(value, str):
        return number_field(1, 1) + bytes_field(3, value.encode())
    return number_field(1, 0) + number_field(2, value)


_LEAVES: Final[Mapping[Scalar, Callable[[Json], bytes]]] = MappingProxyType(
    {
        Scalar.BYTES: base64.b64decode,
        Scalar.TIME: _time,
        Scalar.MICRO_TIME: _time,
        Scalar.QUANTITY: lambda value: bytes_field(1, value.encode()),
        Scalar.INT_OR_STRING: _int_or_string,
        Scalar.ANY: lambda value: bytes_field(1, encode(value)),
    }
)
