"""Computes which fields an object sets, which changed, and who owns them, as server-side apply defines it.

A field set is a set of paths; a path is a tuple of FieldsV1 elements: `f:name` for a field or map key,
`k:{"port":80,"protocol":"TCP"}` for a list item by its keys, `v:"x"` for a set item. The rules (which containers are members of
their own, what is a leaf) follow sigs.k8s.io/structured-merge-diff, fieldpath and typed packages.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from nodeagent.kinds.description.documents import Document, Json, decode, encode
from nodeagent.kinds.description.shapes import ListOf, MapOf, Scalar, Shape, Struct
from nodeagent.wire.unreadable import UNREADABLE

Path: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[Path]

EMPTY: FieldSet = frozenset()
_MOST_SHARED = 200
_LONGEST_SHARED = 32 * 1024
"""Limits of a field set that is cached: larger sets are seldom equal and would stay in memory."""

_NEVER_OWNED = {
    ("f:metadata", f"f:{name}")
    for name in (
        *("name", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp"),
        *("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"),
    )
} | {("f:metadata",)}


def set_fields(struct: Struct, document: Document) -> FieldSet:
    """Returns the fields that an applied configuration claims: leaves, list items and map entries, not their containers."""
    return frozenset(_claimed(struct, document, ())) - _NEVER_OWNED


def _claimed(shape: Shape, value: Json, path: Path) -> Iterator[Path]:
    for element, child_shape, child, is_field in _children(shape, value):
        below = (*path, element)
        if not is_field or child is None or child == {} or _is_leaf(child_shape, child):
            yield below
        if not _is_leaf(child_shape, child):
            yield from _claimed(child_shape, child, below)


def differences(struct: Struct, old: Document, new: Document) -> tuple[FieldSet, FieldSet]:
    """Returns (added or modified, removed) fields between two canonical objects, including containers."""
    changed: set[Path] = set()
    removed: set[Path] = set()
    _compare(struct, old, new, (), changed, removed)
    return frozenset(changed - _NEVER_OWNED), frozenset(removed - _NEVER_OWNED)


def _compare(shape: Shape, old: Json, new: Json, path: Path, changed: set[Path], removed: set[Path]) -> None:
    before = {element: (child_shape, child) for element, child_shape, child, _ in _children(shape, old)}
    for element, child_shape, child, _ in _children(shape, new):
        below = (*path, element)
        previous = before.pop(element, None)
        if previous is None:
            changed.add(below)
            if not _is_leaf(child_shape, child):
                _compare(child_shape, None, child, below, changed, removed)
        elif previous[1] != child:
            if _is_replaced(child_shape):
                changed.add(below)
            else:
                _compare(child_shape, previous[1], child, below, changed, removed)
    for element, (child_shape, child) in before.items():
        below = (*path, element)
        removed.add(below)
        if not _is_leaf(child_shape, child):
            _compare(child_shape, child, None, below, changed, removed)


def _is_leaf(shape: Shape, value: Json) -> bool:
    return _is_replaced(shape) or not value


def _is_replaced(shape: Shape) -> bool:
    return isinstance(shape, Scalar) or shape.atomic


def _children(shape: Shape, value: Json) -> Iterator[tuple[str, Shape, Json, bool]]:
    """Yields (element, shape, value, whether it is a struct field) of every child that can be owned separately."""
    if not value:
        return
    if isinstance(shape, Struct):
        for name, child in value.items():
            field = shape.fields.get(name)
            if field is not None:
                yield f"f:{name}", field.shape, child, True
    elif isinstance(shape, MapOf):
        for name, child in value.items():
            yield f"f:{name}", shape.value, child, False
    elif isinstance(shape, ListOf):
        for child in value:
            yield item_element(shape, child), shape.element, child, False


def item_element(shape: ListOf, item: Json) -> str:
    """Returns the path element of an item of an associative list."""
    if shape.is_set:
        return f"v:{encode(item).decode()}"
    fields = shape.element.fields if isinstance(shape.element, Struct) else {}
    keys = {key: item[key] for key in shape.keys if key in item}
    keys |= {key: fields[key].default for key in shape.keys if key not in item and fields[key].default}
    return f"k:{encode(dict(sorted(keys.items()))).decode()}"


def remove_fields(struct: Struct, document: Document, gone: FieldSet, kept: FieldSet) -> Document:
    """Returns `document` without the fields `gone`; containers stay if they hold a field in `kept`."""
    needed = {path[:depth] for path in kept for depth in range(1, len(path) + 1)}
    result: Document = _without(struct, document, (), gone, needed)
    return result


def _without(shape: Shape, value: Json, path: Path, gone: FieldSet, needed: set[Path]) -> Json:
    if _is_leaf(shape, value):
        return value
    left: list[tuple[str, Json]] = []
    for element, child_shape, child, _ in _children(shape, value):
        below = (*path, element)
        if below in gone and below not in needed:
            continue
        shrunk = _without(child_shape, child, below, gone, needed)
        if shrunk or not child or below in needed or not _is_container(child_shape):
            left.append((element, shrunk))
    if isinstance(shape, ListOf):
        return [child for _, child in left]
    return {element[2:]: child for element, child in left}


def _is_container(shape: Shape) -> bool:
    return not isinstance(shape, Scalar)


def overlay(shape: Shape, live: Json, applied: Json) -> Json:
    """Returns `live` with `applied` merged in: structs and maps merge, associative lists merge by key, the rest is replaced."""
    if live is None or _is_leaf(shape, applied) or _is_leaf(shape, live):
        return applied
    if isinstance(shape, ListOf):
        merged = {element: child for element, _, child, _ in _children(shape, live)}
        for element, child_shape, child, _ in _children(shape, applied):
            merged[element] = overlay(child_shape, merged.get(element), child)
        order = dict.fromkeys(element for element, _, _, _ in _children(shape, applied))
        return [merged[e] for e in order] + [child for element, child in merged.items() if element not in order]
    result = dict(live)
    for element, child_shape, child, _ in _children(shape, applied):
        name = element[2:]
        result[name] = overlay(child_shape, live.get(name), child)
    return result


def to_fields_v1(fields: FieldSet) -> Document:
    """Returns the JSON tree of managedFields[].fieldsV1. Callers must not change it: equal field sets share one."""
    small = len(fields) <= _MOST_SHARED and sum(len(step) for path in fields for step in path) <= _LONGEST_SHARED
    return _shared_tree(fields) if small else _tree(fields)


@lru_cache(maxsize=256)
def _shared_tree(fields: FieldSet) -> Document:
    return _tree(fields)


def _tree(fields: FieldSet) -> Document:
    below: defaultdict[Path, list[str]] = defaultdict(list)
    for path in fields:
        below[path[:-1]].append(path[-1])
    unowned: set[Path] = set()  # containers that are not fields themselves
    for container in tuple(below):
        for depth in range(len(container), 0, -1):
            path = container[:depth]
            if path not in fields and path not in unowned:
                unowned.add(path)
                below[path[:-1]].append(path[-1])
    nodes: dict[Path, Document] = {(): {}}
    for path, elements in below.items():
        node: Document = {".": {}} if path in fields else {}
        for element in _in_order(elements):
            node[element] = {}
        nodes[path] = node
    for path, node in nodes.items():
        if path:
            nodes[path[:-1]][path[-1]] = node
    return nodes[()]


def _in_order(elements: list[str]) -> list[str]:
    """Returns the elements of one container in the order in which Kubernetes writes them."""
    found = sorted(elements)
    first_item = bisect_left(found, "k:")
    has_keys = first_item < len(found) and found[first_item].startswith("k:")
    return sorted(found, key=_sort_key) if has_keys else found


def _sort_key(element: str) -> tuple[str, list[tuple[str, tuple[int, float, str]]]]:
    if element.startswith("k:"):
        return element[:2], [(key, _rank(value)) for key, value in decode(element[2:]).items()]
    return element, []


def _rank(value: Json) -> tuple[int, float, str]:
    """Sorts numbers before texts before everything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, value, ""
    return (1, 0, value) if isinstance(value, str) else (2, 0, encode(value).decode())


def from_fields_v1(tree: Document) -> FieldSet:
    """Returns the field set of a JSON tree (the reverse of `to_fields_v1`); empty if it is not a valid one."""
    try:
        return frozenset(_paths(tree, ()))
    except _NotFields:
        return EMPTY


class _NotFields(Exception):
    pass


def _paths(node: Json, path: Path) -> Iterator[Path]:
    if not isinstance(node, dict):
        raise _NotFields
    if path and (not node or "." in node):
        yield path
    for element, child in node.items():
        if element != ".":
            if not element.startswith("f:") and not _is_item(element):
                raise _NotFields
            yield from _paths(child, (*path, element))


def _is_item(element: str) -> bool:
    """Returns whether the element denotes a list item, by its keys, its value or its index."""
    kind, text = element[:2], element[2:]
    if kind not in ("k:", "v:", "i:"):
        return False
    try:
        value = decode(text)
    except UNREADABLE:
        return False
    if kind == "k:":
        return isinstance(value, dict)
    return kind == "v:" or (isinstance(value, int) and not isinstance(value, bool))


def without_children(fields: Iterable[Path], gone: FieldSet) -> FieldSet:
    """Returns `fields` without the paths in `gone` and everything below them."""
    if not gone:
        return frozenset(fields)
    return frozenset(path for path in fields if not any(path[:depth] in gone for depth in range(1, len(path) + 1)))
