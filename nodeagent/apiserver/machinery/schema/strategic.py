"""Patches in the form of the object: JSON Merge Patch (RFC 7386) and Kubernetes' strategic merge patch. Pure."""

from nodeagent.apiserver.machinery.schema.json_patch import PatchRejected
from nodeagent.kinds.description.documents import Document, Json, encode
from nodeagent.kinds.description.shapes import ListOf, MapOf, Shape, Struct

_DIRECTIVES = ("$patch", "$retainKeys")
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def merge_patch(target: Json, patch: Json) -> Json:
    """Returns the target with the patch applied (RFC 7386): objects merge, null removes, everything else replaces."""
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
    """Like `merge_patch`, but lists with a merge key are merged item by item, with the directives `$patch`, `$retainKeys`,
    `$setElementOrder` and `$deleteFromPrimitiveList`. Raises PatchRejected for an unknown directive."""
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
        retained = set(filter(_is_text, patch["$retainKeys"])) if isinstance(patch["$retainKeys"], list) else set()
        result = {name: value for name, value in result.items() if name in retained}
    for name, value in patch.items():
        if name.startswith("$"):
            _apply_directive(shape, result, name, value, patch)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = _merge_field(_child(shape, name), result.get(name), value, patch.get(f"{_ORDER}{name}"))
    return result


def _apply_directive(shape: Shape | None, result: Document, directive: str, value: Json, patch: Document) -> None:
    """Applies a directive that is in the same map as the field that it changes."""
    if directive.startswith(_DELETE_PRIMITIVES):
        field = directive.removeprefix(_DELETE_PRIMITIVES)
        gone = {encode(item) for item in value} if isinstance(value, list) else set()
        held = result.get(field)
        result[field] = [item for item in held if encode(item) not in gone] if isinstance(held, list) else []
    elif directive.startswith(_ORDER):
        field = directive.removeprefix(_ORDER)
        if field not in patch and isinstance(result.get(field), list):
            result[field] = _sort_items(_child(shape, field), result[field], value, result[field])


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
            held = old if isinstance(old, list) else []
            known = {encode(item) for item in held}
            merged = held + [item for item in new if encode(item) not in known]
        return _sort_items(shape, merged, order if order is not None else new, old)
    return new


def _merge_items(shape: ListOf, key: str, old: list[Json], new: list[Json]) -> list[Json]:
    """Returns the items of both lists; items with the same key are merged."""
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in new):
        return [item for item in new if not (isinstance(item, dict) and "$patch" in item)]
    places: dict[bytes, int] = {}
    for index, item in enumerate(old):
        if isinstance(item, dict):
            places.setdefault(encode(item.get(key)), index)
    kept: list[Json] = list(old)
    added: list[Json] = []
    gone: set[int] = set()
    for item in new:
        if not isinstance(item, dict) or key not in item:
            raise PatchRejected(f"map: {item} does not contain declared merge key: {key}")
        position = places.get(encode(item[key]))
        if item.get("$patch") == "delete":
            if position is not None:
                gone.add(position)
                del places[encode(item[key])]
        elif position is None:
            added.append(strategic_merge(shape.element, {}, item))
        else:
            kept[position] = strategic_merge(shape.element, kept[position], item)
    return [item for index, item in enumerate(kept) if index not in gone] + added


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _sort_items(shape: Shape | None, items: list[Json], order: Json, server_order: Json) -> list[Json]:
    """Returns the items named by `order` in that order, and between them the others in the server's order: each before the
    first named item that follows it there (normalizeElementOrder in k8s.io/apimachinery/pkg/util/strategicpatch)."""
    if not isinstance(order, list):
        return items
    key = shape.merge_key if isinstance(shape, ListOf) else None

    def name_of(item: Json) -> bytes:
        return encode(item.get(key) if key and isinstance(item, dict) else item)

    def places_in(listed: Json) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for index, item in enumerate(listed if isinstance(listed, list) else []):
            found.setdefault(name_of(item), index)
        return found

    # Encoding the key of an item may be expensive: do it once for each.
    wanted, before = places_in(order), places_in(server_order)
    pairs = [(name_of(item), item) for item in items]
    named = sorted((pair for pair in pairs if pair[0] in wanted), key=lambda pair: wanted[pair[0]])
    others = [pair for pair in pairs if pair[0] not in wanted]
    others.sort(key=lambda pair: before.get(pair[0], len(before)))
    result: list[Json] = []
    left = 0
    for name, item in named:
        place = before.get(name)
        while left < len(others) and place is not None and before.get(others[left][0], place) < place:
            result.append(others[left][1])
            left += 1
        result.append(item)
    return result + [item for _, item in others[left:]]
