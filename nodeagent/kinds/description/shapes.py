"""The types of fields: the part of Kubernetes' Go types that clients can observe.

Three facts of the Go types decide the form of a document on the wire: the order of the fields, whether a zero value is left out
(`omitempty`), and whether an absent value differs from zero (a pointer). Three facts of the tags decide how documents merge:
the keys of a list, the strategic-merge key, and whether a value is replaced as a whole (atomic).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class Scalar(Enum):
    """A leaf. The value is Go's name in error messages."""

    STRING = "string"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    BYTES = "[]uint8"
    TIME = "time.Time"
    MICRO_TIME = "v1.MicroTime"
    QUANTITY = "resource.Quantity"
    INT_OR_STRING = "intstr.IntOrString"
    ANY = "interface {}"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. `keys`: the fields that identify an item (listType=map). `is_set`: the item is its own key.

    `merge_key`: the strategic-merge key ("" merges scalars); None: the list is replaced.
    """

    element: "Shape"
    keys: tuple[str, ...] = ()
    is_set: bool = False
    merge_key: str | None = None

    @property
    def atomic(self) -> bool:
        """Whether server-side apply owns the list as a whole."""
        return not self.keys and not self.is_set


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with strings as keys."""

    value: "Shape"
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    name: str
    shape: "Shape"
    doc: str
    pointer: bool = False
    """Whether zero differs from absent; then a zero that was sent is kept."""
    always: bool = False
    """Whether it is written even if absent (no omitempty, or a struct by value)."""
    required: bool = False
    default: str = ""
    """The value that an absent field has in the identity of a list item."""
    position: int = 0
    """Its place in the wire order."""
    number: int = 0
    """Its number in protobuf, from the generated.proto files of k8s.io/api; 0: not read in that encoding."""
    within: int = 0
    """The number of the message that contains it in protobuf, if Go embeds that struct and JSON does not nest it; else 0."""


@dataclass(eq=False, slots=True)
class Struct:
    """An object with known fields, in wire order."""

    name: str
    package: str
    doc: str
    atomic: bool = False
    published_as: str = ""
    """Its name within the package if it differs: two packages may use the same name."""
    fields: dict[str, Field] = field(default_factory=dict)
    always: list[Field] = field(default_factory=list)
    """The fields that are written even if absent."""
    by_number: dict[int, Field] = field(default_factory=dict)
    """The fields by protobuf number; empty for a struct that is not read in that encoding."""
    embedded: dict[int, "Struct"] = field(default_factory=dict)
    """Fields that protobuf nests and JSON does not, by the number of the message that contains them."""

    def add(self, item: Field) -> None:
        """Appends a field."""
        self.fields[item.name] = item
        if item.always:
            self.always.append(item)
        if item.within:
            part = self.embedded.setdefault(item.within, Struct(f"{self.name}/{item.within}", self.package, ""))
            part.by_number[item.number] = item
        elif item.number:
            self.by_number[item.number] = item

    @property
    def definition(self) -> str:
        """The name in OpenAPI documents."""
        return f"{self.package}.{self.published_as or self.name}"


Shape: TypeAlias = Scalar | ListOf | MapOf | Struct


def go_name(shape: Shape) -> str:
    """Returns the name of the type in messages of Go's JSON decoder."""
    if isinstance(shape, Scalar):
        return shape.value
    if isinstance(shape, ListOf):
        return f"[]{go_name(shape.element)}"
    if isinstance(shape, MapOf):
        return f"map[string]{go_name(shape.value)}"
    return f"v1.{shape.published_as or shape.name}"
