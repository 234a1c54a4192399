"""Reads objects in Kubernetes' protobuf encoding, which typed Go clients send (`kubectl create` among them). Pure.

The schemas have the numbers of the fields. A field with an unknown number is skipped, as kube-apiserver skips fields that are
newer than itself.
"""

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from nodeagent.apiserver.machinery.bounds import DEEPEST, Values, check_json
from nodeagent.kinds.description.documents import Document, Json, decode
from nodeagent.kinds.description.shapes import ListOf, MapOf, Scalar, Shape, Struct
from nodeagent.wire.protobuf import Malformed, as_bytes, as_signed, read_fields
from nodeagent.wire.unreadable import UNREADABLE

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
_YEAR_1: Final = -62_135_596_800
_YEAR_10000: Final = 253_402_300_800
_NANOSECONDS: Final = 1_000_000_000
"""In a second."""


class NotProtobuf(ValueError):
    """The bytes are not an encoded object, or its kind cannot be read in this encoding."""


def supports(struct: Struct) -> bool:
    """Returns whether objects of this kind can be read from protobuf."""
    return bool(struct.by_number or struct.embedded)


def read_object(struct: Struct, body: bytes) -> Document:
    r"""Reads an object with its kind and apiVersion from `k8s\\0` and a runtime.Unknown. Raises NotProtobuf, ApiError 413."""
    if not body.startswith(MAGIC) or not supports(struct):
        raise NotProtobuf("not a Kubernetes protobuf object of a known kind")
    try:
        reader = _Reader()
        envelope = dict(reader.fields(body[len(MAGIC) :]))
        header = dict(reader.fields(as_bytes(envelope.get(1, b""))))
        document = reader.message(struct, as_bytes(envelope.get(2, b"")), 0)
        kind, version = (as_bytes(header.get(number, b"")).decode() for number in (2, 1))
    except (Malformed, OverflowError, *UNREADABLE) as error:
        raise NotProtobuf(f"malformed: {error}") from None
    return {**({"kind": kind} if kind else {}), **({"apiVersion": version} if version else {}), **document}


class _Reader:
    """Reads the messages of one body and counts their values before they are created."""

    def __init__(self) -> None:
        self._values = Values()

    def fields(self, data: bytes) -> Iterator[tuple[int, int | bytes]]:
        """Yields (field number, value) of one message, in order. Raises Malformed."""
        for found in read_fields(data):
            self._values.take()
            yield found

    def message(self, struct: Struct, data: bytes, depth: int) -> Document:
        """Reads an object of this shape; `depth` is its nesting."""
        if depth > DEEPEST or not supports(struct):
            raise NotProtobuf(f"{struct.name} cannot be read")
        found: Document = {}
        for number, value in self.fields(data):
            field = struct.by_number.get(number)
            if number in struct.embedded:
                found.update(self.message(struct.embedded[number], as_bytes(value), depth + 1))
            if field is None:
                continue
            name, shape = field.name, field.shape
            if isinstance(shape, ListOf):
                found.setdefault(name, []).append(self._value(shape.element, value, depth))
            elif isinstance(shape, MapOf):
                entry = dict(self.fields(as_bytes(value)))
                key = as_bytes(entry.get(1, b"")).decode()
                found.setdefault(name, {})[key] = self._value(shape.value, entry.get(2, b""), depth)
            else:
                found[name] = self._value(shape, value, depth)
        return found

    def _value(self, shape: Shape, value: int | bytes, depth: int) -> Json:  # noqa: PLR0911 - one line per kind of leaf
        if isinstance(shape, Struct):
            return self.message(shape, as_bytes(value), depth + 1)
        match shape:
            case Scalar.INT32 | Scalar.INT64:
                return as_signed(value)
            case Scalar.BOOL:
                return bool(value)
            case Scalar.BYTES:
                return base64.b64encode(as_bytes(value)).decode()
            case Scalar.TIME | Scalar.MICRO_TIME:
                return _time(dict(self.fields(as_bytes(value))), micro=shape is Scalar.MICRO_TIME)
            case Scalar.INT_OR_STRING:
                fields = dict(self.fields(as_bytes(value)))
                return as_bytes(fields.get(3, b"")).decode() if fields.get(1) else as_signed(fields.get(2, 0))
            case Scalar.QUANTITY:
                return as_bytes(dict(self.fields(as_bytes(value))).get(1, b"")).decode()
            case Scalar.ANY:
                text = as_bytes(dict(self.fields(as_bytes(value))).get(1, b"null"))
                self._values.take(check_json(text))
                return decode(text)
        return as_bytes(value).decode()


def _time(fields: Mapping[int, int | bytes], *, micro: bool) -> str | None:
    if not fields:
        return None
    seconds, nanos = as_signed(fields.get(1, 0)), as_signed(fields.get(2, 0))
    if not (_YEAR_1 <= seconds < _YEAR_10000 and 0 <= nanos < _NANOSECONDS):
        raise NotProtobuf("time out of range")
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanos // 1000, tzinfo=None)
    # strftime does not pad a year to four digits.
    return f"{moment.isoformat(timespec='microseconds' if micro else 'seconds')}Z"
