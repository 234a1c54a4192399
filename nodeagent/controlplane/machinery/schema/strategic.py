"""Patches: JSON Patch (RFC 6902), JSON Merge Patch (RFC 7386) and Kubernetes' strategic merge patch. Pure."""

from nodeagent.controlplane.documents import Document, Json, copy
from nodeagent.controlplane.machinery.schema.shapes import ListOf, MapOf, Shape, Struct

_DIRECTIVES = ("$patch", "$retainKeys")
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


class PatchRejected(ValueError):
    """The patch cannot be applied to this object; the text says why."""


def json_patch(document: Document, operations: Json) -> Document:
    """Applies RFC 6902 operations to a copy. Raises PatchRejected."""
    if not isinstance(operations, list):
        raise PatchRejected("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    result: Json = copy(document)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise PatchRejected("each operation needs an op and a path")
        result = _apply(result, operation)
    if not isinstance(result, dict):
        raise PatchRejected("the patch replaced the object by something else")
    return result


def _apply(document: Json, operation: Document) -> Json:
    kind, path = operation.get("op"), operation["path"]
    match kind:
        case "add" | "replace":
            return _put(document, path, operation.get("value"), insert=kind == "add")
        case "remove":
            return _take(document, path)
        case "test":
            if not _is_same(_get(document, path), operation.get("value")):
                raise PatchRejected(f"testing value {path} failed: test failed")
            return document
        case "move" | "copy":
            source = str(operation.get("from", ""))
            value = copy(_get(document, source))
            return _put(_take(document, source) if kind == "move" else document, path, value, insert=True)
    raise PatchRejected(f"Unexpected kind: {kind}")


def _is_same(one: Json, other: Json) -> bool:
    """Equal as JSON, where true is not 1."""
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
    if not (part.isascii() and part.isdigit()):
        raise PatchRejected(f"not an array index: {part}")
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


def _take(document: Json, pointer: str) -> Json:
    parts = _split(pointer)
    if not parts:
        raise PatchRejected("the whole document cannot be removed")
    parent = document
    for part in parts[:-1]:
        parent = _step(parent, part, pointer)
    _step(parent, parts[-1], pointer)
    del parent[_index(parts[-1]) if isinstance(parent, list) else parts[-1]]
    return document


def merge_patch(target: Json, patch: Json) -> Json:
    """RFC 7386: objects merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def strategic_merge(shape: Shape | None, target: Json, patch: Json) -> Json:
    """Merges as `merge_patch` does, but lists with a merge key item by item, with the `$patch`, `$retainKeys`,
    `$setElementOrder` and `$deleteFromPrimitiveList` directives. Raises PatchRejected on a directive it does not know.
    """
    if not isinstance(patch, dict):
        return patch
    match patch.get("$patch"):
        case "replace":
            return {name: value for name, value in patch.items() if name not in _DIRECTIVES}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise PatchRejected(f'Unknown patch type "{other}" found in map')
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {name: value for name, value in result.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if name.startswith("$"):
            _direct(shape, result, name, value, patch)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _merge_field(_child(shape, name), result.get(name), value, patch.get(f"{_ORDER}{name}"))
    return result


def _direct(shape: Shape | None, result: Document, directive: str, value: Json, patch: Document) -> None:
    """Carries out a directive that stands beside the field it is about."""
    if directive.startswith(_DELETE_PRIMITIVES):
        field = directive.removeprefix(_DELETE_PRIMITIVES)
        result[field] = [item for item in result.get(field) or [] if item not in value]
    elif directive.startswith(_ORDER):
        field = directive.removeprefix(_ORDER)
        if field not in patch and isinstance(result.get(field), list):
            result[field] = _ordered(_child(shape, field), result[field], value)


def _child(shape: Shape | None, name: str) -> Shape | None:
    if isinstance(shape, Struct):
        field = shape.fields.get(name)
        return field.shape if field else None
    return shape.value if isinstance(shape, MapOf) else None


def _merge_field(shape: Shape | None, old: Json, new: Json, order: Json) -> Json:
    if isinstance(new, dict):
        return strategic_merge(shape, old, new)
    if isinstance(shape, ListOf) and shape.merge_key is not None and isinstance(new, list):
        if shape.merge_key:
            merged = _merge_items(shape, shape.merge_key, old if isinstance(old, list) else [], new)
        else:
            merged = list(old or []) + [item for item in new if item not in (old or [])]
        return _ordered(shape, merged, order) if order is not None else merged
    return new


def _merge_items(shape: ListOf, key: str, old: list[Json], new: list[Json]) -> list[Json]:
    """Items new to the list come first, in the order given; kept ones keep their order (as upstream sorts them)."""
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in new):
        return [item for item in new if "$patch" not in item]
    kept = list(old)
    added: list[Json] = []
    for item in new:
        if not isinstance(item, dict) or key not in item:
            raise PatchRejected(f"map: {item} does not contain declared merge key: {key}")
        position = next((i for i, have in enumerate(kept) if have.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if position is not None:
                del kept[position]
        elif position is None:
            added.append(strategic_merge(shape.element, {}, item))
        else:
            kept[position] = strategic_merge(shape.element, kept[position], item)
    return added + kept


def _ordered(shape: Shape | None, items: list[Json], order: Json) -> list[Json]:
    if not isinstance(order, list):
        return items
    key = shape.merge_key if isinstance(shape, ListOf) else None

    def name_of(item: Json) -> Json:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [name_of(item) for item in order]
    listed = sorted((item for item in items if name_of(item) in wanted), key=lambda item: wanted.index(name_of(item)))
    return listed + [item for item in items if name_of(item) not in wanted]
