"""Converts a client's JSON to canonical form: fields in wire order, absent ones left out as by Go's encoder.

Unknown fields are dropped and reported (`fieldValidation` decides how); a value of the wrong type is an error. Messages follow
sigs.k8s.io/json, which clients and their tests rely on.
"""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from typing import TypeAlias

from nodeagent.kinds.description.documents import Document, Json, encode
from nodeagent.kinds.description.shapes import Field, ListOf, MapOf, Scalar, Shape, Struct, go_name
from nodeagent.kinds.description.status import excerpt

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\Z", re.ASCII)
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?\d+))?\Z", re.ASCII)
_KEY = re.compile(rb'"\s*:')
_LONGEST_MATCHED = 256
"""Characters of a time or a quantity."""
_MOST_REPEATED = 100
_TWICE = 2
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


FieldPath: TypeAlias = tuple[()] | tuple["FieldPath", str | int]
"""A path, innermost step last; it is converted to text only for messages."""


class TypeMismatch(ValueError):
    """A value of a type that its field cannot have; the text is the message of Go's decoder.

    path: of the field (``spec.ports[0].port``); empty if it is not known.
    """

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.path = path


def normalise(struct: Struct, document: Mapping[str, Json], unknown: list[str] | None = None) -> Document:
    """Returns `document` in canonical form; appends the paths of unknown fields to `unknown`. Raises TypeMismatch. `kind` and
    `apiVersion` at the top level are left to the caller: they are neither reported nor copied."""
    return _struct(struct, document, (), _Conversion([] if unknown is None else unknown, whole=True))


def normalise_sparse(struct: Struct, document: Mapping[str, Json], unknown: list[str]) -> Document:
    """Returns `document` checked and ordered, with exactly the fields that it has, for server-side apply. Raises TypeMismatch."""
    return _struct(struct, document, (), _Conversion(unknown, whole=False))


@cache
def empty(struct: Struct) -> Document:
    """Returns the canonical form of an empty document; callers must not change it."""
    return normalise(struct, {})


@dataclass(frozen=True, slots=True)
class _Conversion:
    """The options of one conversion. `whole`: adds fields that are always written, and drops zero values."""

    unknown: list[str]
    whole: bool


def _struct(struct: Struct, value: Json, path: FieldPath, run: _Conversion) -> Document:
    """Converts the fields, and sorts them only if needed: most documents are sparse and already in order."""
    out: Document = {}
    fields = struct.fields
    last = -1
    ordered = True
    for name, raw in value.items():
        field = fields.get(name)
        if field is None:
            if path or name not in ("kind", "apiVersion"):
                run.unknown.append(_dotted((path, name)))
            continue
        if raw is None:
            continue
        shape = field.shape
        if shape is Scalar.STRING and raw.__class__ is str:
            new: Json = raw
        else:
            new = _convert(shape, raw, (path, name), struct, run)
        if new or field.pointer or field.always or not run.whole:
            out[name] = new
            if field.position < last:
                ordered = False
            last = field.position
    if run.whole:
        for field in struct.always:
            if field.name not in out:
                out[field.name] = _zero(field, path, run)
                ordered = ordered and field.position > last
                last = max(last, field.position)
    return out if ordered else {name: out[name] for name in fields if name in out}


def _dotted(path: FieldPath) -> str:
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(step if isinstance(step, str) else f"[{step}]")
    return ".".join(reversed(steps)).replace(".[", "[")


def _zero(field: Field, path: FieldPath, run: _Conversion) -> Json:
    shape = field.shape
    if isinstance(shape, Struct):
        return _struct(shape, {}, (path, field.name), run)
    if isinstance(shape, Scalar):
        if shape is Scalar.STRING:
            return ""
        if shape is Scalar.QUANTITY:
            return "0"
        if shape in (Scalar.INT32, Scalar.INT64, Scalar.INT_OR_STRING):
            return 0
    return None


def _convert(shape: Shape, raw: Json, path: FieldPath, owner: Struct, run: _Conversion) -> Json:
    if isinstance(shape, Scalar):
        return _scalar(shape, raw, path, owner)
    if isinstance(shape, Struct):
        if not isinstance(raw, dict):
            raise _mismatch(raw, path, owner, shape)
        return _struct(shape, raw, path, run)
    if isinstance(shape, ListOf):
        return _list(shape, raw, path, owner, run)
    return _map(shape, raw, path, owner, run)


def _list(shape: ListOf, raw: Json, path: FieldPath, owner: Struct, run: _Conversion) -> list[Json]:
    if not isinstance(raw, list):
        raise _mismatch(raw, path, owner, shape)
    element = shape.element
    if isinstance(element, Struct):
        items = []
        for index, item in enumerate(raw):
            if item is not None and not isinstance(item, dict):
                raise _mismatch(item, path, owner, element)
            items.append(_struct(element, item or {}, (path, index), run))
        return items
    return [_convert(element, item, path, owner, run) for item in raw]


def _map(shape: MapOf, raw: Json, path: FieldPath, owner: Struct, run: _Conversion) -> dict[str, Json]:
    if not isinstance(raw, dict):
        raise _mismatch(raw, path, owner, shape)
    value = shape.value
    if value is Scalar.STRING:
        for item in raw.values():
            if item.__class__ is not str and item is not None:
                raise _mismatch(item, path, owner, value)
        return {key: item or "" for key, item in sorted(raw.items())}
    return {key: _convert(value, item, path, owner, run) for key, item in sorted(raw.items())}


def _scalar(shape: Scalar, raw: Json, path: FieldPath, owner: Struct) -> Json:
    if shape is Scalar.ANY:
        return raw
    if shape is Scalar.INT32 or shape is Scalar.INT64:
        if _is_integer(raw) and int(raw) in (_INT32 if shape is Scalar.INT32 else _INT64):
            return int(raw)
    elif shape is Scalar.INT_OR_STRING:
        if isinstance(raw, str) or (_is_integer(raw) and int(raw) in _INT32):
            return raw if isinstance(raw, str) else int(raw)
    elif shape is Scalar.BOOL:
        if isinstance(raw, bool):
            return raw
    elif shape is Scalar.QUANTITY:
        return _quantity(raw)
    elif isinstance(raw, str):
        return _text(shape, raw)
    raise _mismatch(raw, path, owner, shape)


def _text(shape: Scalar, raw: str) -> str:
    if shape is Scalar.BYTES:
        return _bytes(raw)
    if shape is Scalar.TIME or shape is Scalar.MICRO_TIME:
        return _time(raw, micro=shape is Scalar.MICRO_TIME)
    return raw


def _is_integer(raw: Json) -> bool:
    return not isinstance(raw, bool) and (isinstance(raw, int) or (isinstance(raw, float) and raw.is_integer()))


def _time(raw: str, *, micro: bool) -> str:
    raw = excerpt(raw, _LONGEST_MATCHED)
    try:
        utc = datetime.fromisoformat(raw).astimezone(UTC) if _TIME.match(raw) else None
    except (ValueError, OverflowError):  # no such day, or year 0 or 10000 in UTC
        utc = None
    if utc is None:
        raise TypeMismatch(f'parsing time "{raw}" as "2006-01-02T15:04:05Z07:00": cannot parse "{raw}" as "2006"')
    return utc.isoformat(timespec="microseconds" if micro else "seconds").removesuffix("+00:00") + "Z"


def _quantity(raw: Json) -> str:
    text = str(raw) if _is_integer(raw) or isinstance(raw, str | float) else ""
    if len(text) > _LONGEST_MATCHED or not _QUANTITY.match(text):
        raise TypeMismatch(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    return text


def _bytes(raw: str) -> str:
    try:
        base64.b64decode(raw, validate=True)
    except binascii.Error:
        raise TypeMismatch("illegal base64 data at input byte 0") from None
    return raw


def _mismatch(raw: Json, path: FieldPath, owner: Struct, shape: Shape) -> TypeMismatch:
    dotted = _dotted(path)
    plain = re.sub(r"\[\d+\]", "", dotted)
    return TypeMismatch(
        f"json: cannot unmarshal {_json_type(raw)} into Go struct field {owner.published_as or owner.name}.{plain}"
        f" of type {go_name(shape)}",
        dotted,
    )


def _json_type(raw: Json) -> str:
    if isinstance(raw, bool):
        return "bool"
    if isinstance(raw, int | float):
        number = json.dumps(raw)
        return "number" if _is_integer(raw) else f"number {number}"
    if isinstance(raw, str):
        return "string"
    return "array" if isinstance(raw, list) else "object"


def duplicate_fields(text: bytes, document: Json) -> list[str]:
    """Returns the paths of keys that an object has twice (`fieldValidation` reports them; decoders keep the last value).

    `document` is `text` decoded. Usually counting suffices: encoded again, a document without duplicates has as many quotes
    before colons as the text. If the counts differ (escapes in strings may cause that, too), the text is parsed again.
    """
    if len(_KEY.findall(text)) == encode(document).count(b'":'):
        return []
    sent = json.loads(text, object_pairs_hook=_Pairs)
    return [_written(place) for place in islice(_repeated(sent, None), _MOST_REPEATED)]


class _Pairs(list[tuple[str, Json]]):
    """An object as it was sent, including repeated keys."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A key or an index, within another place. It is converted to text only when reported: a path may be as long as the body."""

    within: "_Place | None"
    step: str | int


def _repeated(value: Json, place: _Place | None) -> Iterator[_Place]:
    """Yields each key that occurs again in its object, once, in the order of the text."""
    if isinstance(value, _Pairs):
        times: Counter[str] = Counter()
        for key, below in value:
            here = _Place(place, key)
            times[key] += 1
            if times[key] == _TWICE:
                yield here
            yield from _repeated(below, here)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _repeated(below, _Place(place, index))


def _written(place: _Place) -> str:
    steps: list[str] = []
    found: _Place | None = place
    while found is not None:
        steps.append(f"[{found.step}]" if isinstance(found.step, int) else f".{excerpt(found.step)}")
        found = found.within
    return "".join(reversed(steps)).removeprefix(".")
