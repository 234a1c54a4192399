"""What a row says of a resource. Everything generic (verbs, discovery, tables, schemas, access) reads the row."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.formats import Check, dns_subdomain
from nodeagent.kinds.description.life import KindLife, Plain
from nodeagent.kinds.description.printing import Printer
from nodeagent.kinds.description.shapes import Scalar, Shape, Struct
from nodeagent.kinds.description.status import FieldError

Validate: TypeAlias = Callable[[Document], Iterable[FieldError]]
ValidateUpdate: TypeAlias = Callable[[Document, Document], Iterable[FieldError]]

NAMESPACES: Final = "namespaces"
"""The collection whose objects the namespaced ones live in."""
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
class Part:
    """A subresource. `group` and `kind` say what is sent to it where that is not the resource's own kind."""

    name: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    kind: str = ""
    take: Callable[[Document, Document], None] = _takes_nothing
    """Brings what the part is from the second document into the first."""


def _take_status(document: Document, sent: Document) -> None:
    """Metadata may change along with a status."""
    document["metadata"] = sent["metadata"]
    document["status"] = sent.get("status", {})


STATUS: Final = "status"
_STATUS_PART: Final = Part(STATUS, take=_take_status)
_GROUPS: Final = (
    *("", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "networking.k8s.io"),
    *("coordination.k8s.io", "discovery.k8s.io"),
)
"""In the order discovery lists them: by the priorities kube-aggregator gives them."""


def rank(group: str) -> tuple[int, str]:
    """Where discovery lists a group; those that Kubernetes has not come last."""
    return (_GROUPS.index(group) if group in _GROUPS else len(_GROUPS), group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of object and how it is treated."""

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
    """Where objects are stored; two resources may be faces of one collection."""
    kept_seconds: float | None = None
    """How long an object stays after it was last written; None: until somebody deletes it."""
    place: str = ""
    """Where kube-apiserver keeps them in etcd, where that is not the plural."""
    name_check: Check = dns_subdomain
    default: Callable[[Document], None] = _nothing
    validate: Validate = _no_errors
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By path without indexes (``spec.ports.protocol``): all that `validate` accepts there."""
    validate_update: ValidateUpdate | None = None
    warnings: Callable[[Document], list[str]] = _no_warnings
    """Warnings that a client receives beside the answer to a write."""
    insists_on_version: bool = False
    """A PUT has to name the resourceVersion it was made from, lest it takes a lock from somebody."""
    generation_of: tuple[str, ...] = ()
    """Paths of fields whose change counts up metadata.generation; empty: the kind has no generation."""
    fields: tuple[str, ...] = ()
    """What field selectors may name, besides metadata.name and metadata.namespace."""
    field_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where those fields are in the stored object that are not where their name says: the first path with a value counts;
    without paths the field is always empty."""
    to_stored: Callable[[Document], Document] = _same
    from_stored: Callable[[Document], Document] = _same
    stored_struct: Struct | None = None
    """The struct of the stored form, where it differs."""
    immortal: frozenset[str] = frozenset()
    """Names of objects that may not be deleted."""
    returns_deleted: bool = False
    """A deletion answers with the object instead of a Status."""
    creates_on_update: bool = False
    """An update of an object that does not exist creates it."""
    deprecated: str = ""
    """UnstoredKind as a Warning header with every response."""
    storage_hash: str = ""
    confidential: bool = False
    """Those who may only look may not look at it."""
    further_parts: tuple[Part, ...] = ()
    """Subresources beside the status."""
    own_life: KindLife | None = None
    """The kind's own part in writes; None: nothing but that a status is written through its subresource only."""
    has_dependents: bool = True
    """Other objects may name it as their owner, so a deletion may wait for them."""
    holds_addresses: bool = False
    """Its objects hold cluster addresses and node ports, which are written in the same transaction."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The subresources."""
        return (*self.further_parts, _STATUS_PART) if self.has_status else self.further_parts

    def part(self, name: str) -> Part | None:
        """The subresource of that name."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def life(self) -> KindLife:
        """The kind's part in writes."""
        return self.own_life if self.own_life is not None else Plain(has_status=self.has_status)

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
        """All fields a field selector may name. Kinds without fields of their own take a namespace although they have none."""
        own = ("metadata.name", "metadata.namespace") if self.namespaced or not self.fields else ("metadata.name",)
        return own + self.fields

    def unselectable(self, name: str) -> str:
        """The error for a selector with another field (k8s.io/apimachinery/pkg/runtime, conversion.go)."""
        if self.fields:
            return f"field label not supported: {name}"
        return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'

    @property
    def converts(self) -> bool:
        """The stored form is not the one clients of this resource see."""
        return self.stored_struct is not None

    @property
    def opening(self) -> bytes:
        """How the encoded object begins; the stored body follows after its own brace."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.group_version}",'.encode()

    def path(self, namespace: str, name: str) -> str:
        """The path of an object in its collection."""
        return f"{namespace}/{name}" if self.namespaced else name


class FieldReader:
    """Reads the selectable fields of encoded objects, and nothing else of them."""

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
        """Values by path, as field selectors compare them. Those of the last objects are kept: all watchers look at a change."""

    def _read(self, body: bytes) -> Mapping[str, str]:
        """Text, empty when absent, but "false" for an absent boolean."""
        document = self._decoder.decode(body)
        return {
            name: next(filter(None, (_text(document, steps) for steps in places)), absent)
            for name, places, absent in self._fields
        }


def _absent(struct: Struct, paths: tuple[str, ...]) -> str:
    """What the absent field counts as: the zero value of its Go type."""
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
    """The rows of the kinds, found by group, version and plural name, in the order discovery lists them."""

    def __init__(self, rows: Iterable[Resource]) -> None:
        self.rows = tuple(sorted(rows, key=lambda row: (rank(row.group), row.plural)))
        self._by_name = {(row.group, row.version, row.plural): row for row in self.rows}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The row of a resource."""
        return self._by_name.get((group, version, plural))

    def named(self, plural: str, group: str = "") -> Resource:
        """The row of a resource that the server itself uses. Raises KeyError for a resource that is not served."""
        return self._by_name[(group, "v1", plural)]

    def groups(self) -> dict[str, list[Resource]]:
        """Rows by group, the core group first."""
        found: dict[str, list[Resource]] = {}
        for row in self.rows:
            found.setdefault(row.group, []).append(row)
        return found
