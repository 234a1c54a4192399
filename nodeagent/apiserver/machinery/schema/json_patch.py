"""Applies JSON Patches (RFC 6902), within bounds. Pure."""

from dataclasses import dataclass
from typing import Final

from nodeagent.kinds.description.documents import Document, Json, copy, encode, is_deeper

MOST_OPERATIONS: Final = 10_000
"""The limit of kube-apiserver."""
MOST_COPIED_BYTES: Final = 3 * 1024 * 1024
"""All that `copy` may add, as in kube-apiserver: without a limit, a map copied into itself doubles each time."""
_DEEPEST: Final = 100
_MOST_DIGITS: Final = 9
"""Of an index: no list is longer."""
_SHOWN: Final = 100


class PatchRejected(ValueError):
    """The patch cannot be applied to this object; the text says why."""


class TooManyOperations(Exception):
    """The patch has more operations than the limit."""

    def __init__(self, count: int) -> None:
        super().__init__(str(count))
        self.count = count


@dataclass(slots=True)
class _CopiedBytes:
    size_bytes: int = 0


def json_patch(document: Document, operations: Json) -> Document:
    """Returns a copy of the document with the operations applied. Raises PatchRejected, TooManyOperations."""
    if not isinstance(operations, list):
        raise PatchRejected("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > MOST_OPERATIONS:
        raise TooManyOperations(len(operations))
    result: Json = copy(document)
    copied = _CopiedBytes()
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise PatchRejected("each operation needs an op and a path")
        result = _apply(result, operation, copied)
    if not isinstance(result, dict):
        raise PatchRejected("the patch replaced the object by something else")
    if is_deeper(result, _DEEPEST):
        raise PatchRejected(f"the patch nests the object more than {_DEEPEST} deep")
    return result


def _apply(document: Json, operation: Document, copied: _CopiedBytes) -> Json:
    kind, path = operation.get("op"), operation["path"]
    match kind:
        case "add" | "replace":
            return _put(document, path, copy(operation.get("value")), insert=kind == "add")
        case "remove":
            return _remove(document, path)
        case "test":
            if not _is_same(_get(document, path), operation.get("value")):
                raise PatchRejected(f"testing value {path} failed: test failed")
            return document
        case "move":
            source = _source(operation)
            value = _get(document, source)
            return _put(_remove(document, source), path, value, insert=True)
        case "copy":
            value = _get(document, _source(operation))
            return _put(document, path, _copy_counted(value, copied), insert=True)
    raise PatchRejected(f"Unexpected kind: {kind}")


def _source(operation: Document) -> str:
    """Returns the place that is copied or moved; without one kube-apiserver refuses the patch, too."""
    found = operation.get("from")
    if not isinstance(found, str):
        raise PatchRejected(
            f"{operation['op']} operation failed to decode from: operation, missing from field: missing value"
        )
    return found


def _copy_counted(value: Json, copied: _CopiedBytes) -> Json:
    try:
        copied.size_bytes += len(encode(value))
        if copied.size_bytes <= MOST_COPIED_BYTES:
            return copy(value)
    except RecursionError:
        raise PatchRejected("the patch nests the object too deeply") from None
    raise PatchRejected(
        "Unable to complete the copy, the accumulated size increase of copy is"
        f" {copied.size_bytes}, exceeding the limit {MOST_COPIED_BYTES}"
    )


def _is_same(one: Json, other: Json) -> bool:
    """Returns whether two values are equal as JSON, where true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _split(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise PatchRejected(f"not a JSON pointer: {pointer}")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _step(node: Json, part: str, pointer: str) -> Json:
    try:
        if isinstance(node, list):
            return node[_index(part)]
        if isinstance(node, dict):
            return node[part]
    except (KeyError, IndexError):
        pass
    raise PatchRejected(f"path {pointer} does not exist: missing value")


def _index(part: str) -> int:
    if not (part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS):
        raise PatchRejected(f"not an array index: {part[:_SHOWN]}")
    return int(part)


def _get(document: Json, pointer: str) -> Json:
    for part in _split(pointer):
        document = _step(document, part, pointer)
    return document


def _put(document: Json, pointer: str, value: Json, *, insert: bool) -> Json:
    parts = _split(pointer)
    if not parts:
        return value
    parent = document
    for part in parts[:-1]:
        parent = _step(parent, part, pointer)
    last = parts[-1]
    if isinstance(parent, list):
        position = len(parent) if last == "-" and insert else _index(last)
        if position > len(parent) or (position == len(parent) and not insert):
            raise PatchRejected(f"Unable to access invalid index: {last}: invalid index referenced")
        if insert:
            parent.insert(position, value)
        else:
            parent[position] = value
    elif isinstance(parent, dict):
        if not insert and last not in parent:
            raise PatchRejected(f"replace operation does not apply: doc is missing key: {pointer}: missing value")
        parent[last] = value
    else:
        raise PatchRejected(f"path {pointer} does not exist: missing value")
    return document


def _remove(document: Json, pointer: str) -> Json:
    parts = _split(pointer)
    if not parts:
        raise PatchRejected("the whole document cannot be removed")
    parent = document
    for part in parts[:-1]:
        parent = _step(parent, part, pointer)
    _step(parent, parts[-1], pointer)
    del parent[_index(parts[-1]) if isinstance(parent, list) else parts[-1]]
    return document
