"""Which fields and words an object in a manifest may have, by the schema of its kind; which kinds exist.

The API server refuses a field that it does not know and a word in the wrong case; the decoder would not notice either.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from nodeagent.kinds import endpoints, endpointslice, node, service, servicecidr
from nodeagent.kinds.catalog import rows
from nodeagent.kinds.description import shapes
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shapes import ListOf, MapOf, Scalar, Shape
from nodeagent.model.text import did_you_mean
from nodeagent.wire.yaml.yaml_documents import Value

ROWS: Mapping[str, Resource] = {
    row.kind: row for kind in (service, endpointslice, endpoints, node, servicecidr) for row in kind.ROWS
}
"""The resource of each kind that is read."""

_OTHER_KINDS: Mapping[str, str] = {
    "": "Binding ComponentStatus Config LimitRange List PersistentVolume PersistentVolumeClaim ReplicationController"
    " ResourceQuota",
    "apps": "ControllerRevision DaemonSet ReplicaSet StatefulSet",
    "batch": "CronJob Job",
    "discovery.k8s.io": "",
    "networking.k8s.io": "Ingress IngressClass NetworkPolicy",
}
"""The kinds of Kubernetes 1.36 in some groups that the embedded API server does not have, without lists. Of other groups
nothing is known. `v1 Config` is a kubeconfig."""

_TYPES: Mapping[Scalar, Any] = {
    Scalar.BOOL: bool,
    Scalar.INT32: int,
    Scalar.INT64: int,
    Scalar.INT_OR_STRING: int | str,
    Scalar.STRING: str,
}


def fits(kind: str, value: Value | Raw) -> bool:
    """Returns whether every field is known, and has the right type and one of its words.

    Only True can be relied on: after False the whole check of the object must decide, which takes twenty times as long.
    """
    try:
        if isinstance(value, Raw):
            msgspec.json.decode(value, type=_strict(kind))
        else:
            msgspec.convert(value, type=_strict(kind))
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError):
        return False
    return True


@cache
def _strict(kind: str) -> type[Struct]:
    row = ROWS[kind]
    return _struct_of(row.struct, row.words, "", ("apiVersion", "kind"))


def _struct_of(
    struct: shapes.Struct, words: Mapping[str, tuple[str, ...]], path: str, more: Iterable[str] = ()
) -> type[Struct]:
    members = [
        (name, _type_of(field.shape, words, f"{path}{name}") | None, None) for name, field in struct.fields.items()
    ]
    return msgspec.defstruct("Strict", [*members, *((name, Any, None) for name in more)], forbid_unknown_fields=True)


def _type_of(shape: Shape, words: Mapping[str, tuple[str, ...]], path: str) -> Any:
    if isinstance(shape, ListOf):
        return list[_type_of(shape.element, words, path)]  # type: ignore[misc]  # a type made at run time
    if isinstance(shape, MapOf):
        return dict[str, _type_of(shape.value, words, path) | None]  # type: ignore[misc]  # likewise
    if isinstance(shape, shapes.Struct):
        return _struct_of(shape, words, f"{path}.")
    return Literal[("", *words[path])] if path in words else _TYPES.get(shape, object)


@cache
def kinds_of_groups() -> Mapping[str, frozenset[str]]:
    """Returns all kinds of some groups."""
    return {
        group: frozenset([*others.split(), *(row.kind for row in rows() if row.group == group)])
        for group, others in _OTHER_KINDS.items()
    }


def unknown_kind(version: str, kind: str) -> str | None:
    """Returns why no API server has this kind; None if one may."""
    group = version.rpartition("/")[0]
    groups = kinds_of_groups()
    known = groups.get(group)
    if known is None or kind in known or kind.removesuffix("List") in known:
        return None
    elsewhere = next((other for other, kinds in groups.items() if kind in kinds), None)
    if elsewhere is not None:
        return f"there is no kind {kind} in apiVersion {version}; it is of the group {elsewhere or 'v1'}"
    everything = frozenset().union(*groups.values())
    return (
        f"there is no kind {kind} in apiVersion {version}{did_you_mean(kind, known) or did_you_mean(kind, everything)}"
    )


def prepare(kinds: Iterable[type[Struct]]) -> None:
    """Prepares types. msgspec does it at a type's first use, and crashes if two threads do that at the same time."""
    for kind in kinds:
        msgspec.json.Decoder(kind)


prepare(map(_strict, ROWS))
