"""The row of a resource: everything that generic code (verbs, discovery, tables, schemas, access) needs to know of a kind."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.formats import Check, dns_subdomain
from nodeagent.kinds.description.life import KindLife
from nodeagent.kinds.description.printing import Printer
from nodeagent.kinds.description.shapes import Scalar, Shape, Struct
from nodeagent.kinds.description.status import FieldError

Validate: TypeAlias = Callable[[Document], Iterable[FieldError]]
ValidateUpdate: TypeAlias = Callable[[Document, Document], Iterable[FieldError]]

NAMESPACES: Final = "namespaces"
"""The collection of namespaces."""
VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def _nothing(_: Document) -> None:
    return None


def _no_errors(_: Document) -> list[FieldError]:
    return []


def _no_warnings(_: Document) -> list[str]:
    return []


def _same(document: Document) -> Document:
    return document


def _takes_nothing(_: Document, __: Document) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource. `group` and `kind` name the kind that is sent to it, if that is not the resource's own."""

    name: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    kind: str = ""
    take: Callable[[Document, Document], None] = _takes_nothing
    """Copies the fields of the subresource from the second document into the first."""


def _take_status(document: Document, sent: Document) -> None:
    """Copies the status, and metadata, which may change with it."""
    document["metadata"] = sent["metadata"]
    document["status"] = sent.get("status", {})


STATUS: Final = "status"
_STATUS_SUBRESOURCE: Final = Subresource(STATUS, take=_take_status)
_GROUPS: Final = (
    *("", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "networking.k8s.io"),
    *("coordination.k8s.io", "discovery.k8s.io"),
)
"""In the order of discovery: by the priorities that kube-aggregator gives them."""


def rank(group: str) -> tuple[int, str]:
    """Returns the sort key of a group in discovery; groups that Kubernetes does not have come last."""
    return (_GROUPS.index(group) if group in _GROUPS else len(_GROUPS), group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of object and how it is handled."""

    group: str = ""
    version: str = "v1"
    plural: str
    singular: str
    kind: str
    struct: Struct
    printer: Printer
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    has_status: bool = False
    verbs: tuple[str, ...] = VERBS
    collection: str = ""
    """Where objects are stored, if not under `plural`; two resources may share one collection."""
    kept_seconds: float | None = None
    """How long an object stays after it was last written; None: until it is deleted."""
    place: str = ""
    """The part of kube-apiserver's etcd key for this kind, if it is not the plural."""
    name_check: Check = dns_subdomain
    default: Callable[[Document], None] = _nothing
    validate: Validate = _no_errors
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By path without indexes (``spec.ports.protocol``): all values that `validate` accepts there."""
    validate_update: ValidateUpdate | None = None
    warnings: Callable[[Document], list[str]] = _no_warnings
    """Returns warnings that a client receives with the response to a write."""
    insists_on_version: bool = False
    """Whether a PUT must have a resourceVersion, so that no client takes a lock from another."""
    generation_of: tuple[str, ...] = ()
    """Paths of the fields whose change increases metadata.generation; empty: the kind has no generation."""
    fields: tuple[str, ...] = ()
    """What field selectors may use, besides metadata.name and metadata.namespace."""
    field_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For fields whose value is at another path of the stored object: its paths; the first with a value counts.

    Without paths the field is always empty.
    """
    to_stored: Callable[[Document], Document] = _same
    from_stored: Callable[[Document], Document] = _same
    stored_struct: Struct | None = None
    """The struct of the stored form, if it differs."""
    immortal: frozenset[str] = frozenset()
    """Names of objects that cannot be deleted."""
    returns_deleted: bool = False
    """Whether the response to a deletion is the object instead of a Status."""
    creates_on_update: bool = False
    """Whether an update of an object that does not exist creates it."""
    deprecated: str = ""
    """The text of a Warning header in every response."""
    storage_hash: str = ""
    confidential: bool = False
    """Whether users with the role of a reader may not read it."""
    further_subresources: tuple[Subresource, ...] = ()
    """Subresources besides the status."""
    own_life: KindLife | None = None
    """The kind's own life cycle; None: the default."""
    has_dependents: bool = True
    """Whether other objects may name it as their owner, so that a deletion may wait for them."""
    holds_addresses: bool = False
    """Whether its objects have cluster addresses and node ports, which are written in the same transaction."""

    @property
    def subresources(self) -> tuple[Subresource, ...]:
        """All subresources."""
        return (*self.further_subresources, _STATUS_SUBRESOURCE) if self.has_status else self.further_subresources

    def subresource(self, name: str) -> Subresource | None:
        """Returns the subresource of that name, or None."""
        return next((one for one in self.subresources if one.name == name), None)

    @property
    def life(self) -> KindLife:
        """The kind's life cycle."""
        return self.own_life if self.own_life is not None else KindLife(has_status=self.has_status)

    @property
    def group_version(self) -> str:
        """`v1` or `discovery.k8s.io/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def stored_in(self) -> str:
        """The name of the collection."""
        return self.collection or self.plural

    @property
    def selectable(self) -> tuple[str, ...]:
        """The fields for field selectors. Cluster-scoped kinds without own fields allow metadata.namespace, too."""
        own = ("metadata.name", "metadata.namespace") if self.namespaced or not self.fields else ("metadata.name",)
        return own + self.fields

    def unselectable(self, name: str) -> str:
        """Returns the error text for another field (k8s.io/apimachinery/pkg/runtime, conversion.go)."""
        if self.fields:
            return f"field label not supported: {name}"
        return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'

    @property
    def converts(self) -> bool:
        """Whether the stored form differs from the form that clients see."""
        return self.stored_struct is not None

    @property
    def opening(self) -> bytes:
        """The beginning of an encoded object; the stored body follows without its opening brace."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.group_version}",'.encode()

    def path(self, namespace: str, name: str) -> str:
        """Returns the path of an object in its collection."""
        return f"{namespace}/{name}" if self.namespaced else name


class FieldReader:
    """Reads only the selectable fields of encoded objects."""

    def __init__(self, resource: Resource) -> None:
        struct = resource.stored_struct or resource.struct
        sources = {name: resource.field_sources.get(name, (name,)) for name in resource.selectable}
        self._fields = tuple(
            (name, tuple(path.split(".") for path in paths), _absent(struct, paths)) for name, paths in sources.items()
        )
        tree: dict[str, Json] = {}
        for steps in (steps for _, places, _ in self._fields for steps in places):
            node = tree
            for step in steps[:-1]:
                node = node.setdefault(step, {})
            node[steps[-1]] = None
        self._decoder: msgspec.json.Decoder[Json] = msgspec.json.Decoder(_struct_of(tree))
        self.read: Callable[[bytes], Mapping[str, str]] = lru_cache(maxsize=2)(self._read)
        """Returns values by path, for field selectors. Caches the last objects, since all watchers read a changed object."""

    def _read(self, body: bytes) -> Mapping[str, str]:
        """Returns the values as text: empty if absent, but "false" for an absent boolean."""
        document = self._decoder.decode(body)
        return {
            name: next(filter(None, (_text(document, steps) for steps in places)), absent)
            for name, places, absent in self._fields
        }


def _absent(struct: Struct, paths: tuple[str, ...]) -> str:
    """Returns the value of an absent field: the zero value of its Go type."""
    shape: Shape = struct
    for step in paths[0].split(".") if paths else ():
        if isinstance(shape, Struct):
            shape = shape.fields[step].shape
    return "false" if shape is Scalar.BOOL else ""


def _struct_of(tree: Mapping[str, Json]) -> type[msgspec.Struct]:
    fields: list[tuple[str, Json, Json]] = [
        (name, Json if below is None else _struct_of(below) | None, None) for name, below in tree.items()
    ]
    return msgspec.defstruct("Selectable", fields)


def _text(value: Json, steps: Iterable[str]) -> str:
    for step in steps:
        value = getattr(value, step, None)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Catalog:
    """The rows of all kinds, by group, version and plural name, in the order of discovery."""

    def __init__(self, rows: Iterable[Resource]) -> None:
        self.rows = tuple(sorted(rows, key=lambda row: (rank(row.group), row.plural)))
        self._by_name = {(row.group, row.version, row.plural): row for row in self.rows}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Returns the row of a resource, or None if it does not exist."""
        return self._by_name.get((group, version, plural))

    def named(self, plural: str, group: str = "") -> Resource:
        """Returns the row of a resource that the server itself uses. Raises KeyError if it does not exist."""
        return self._by_name[(group, "v1", plural)]

    def groups(self) -> dict[str, list[Resource]]:
        """Returns the rows by group, the core group first."""
        found: dict[str, list[Resource]] = {}
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return found
