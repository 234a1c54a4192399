"""Checks an object as the API server would before it creates it. Nothing is allocated or compared with other objects. Pure."""

from typing import NamedTuple

from nodeagent.kinds.description.decoding import TypeMismatch, normalise
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.object_rules import metadata
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shapes import ListOf, Struct
from nodeagent.kinds.description.status import FieldError
from nodeagent.model.text import did_you_mean

DEFAULT_NAMESPACE = "default"


class Complaint(NamedTuple):
    """One error of an object.

    path: of the field (``spec.ports[0].port``), empty for the object as a whole.
    reason: `UnknownField`, `UnknownValue` (a word that the field cannot hold) or `RefusedByAPI`.
    text: one line, the server's words, and what the author may have meant.
    """

    path: str
    reason: str
    text: str


def complaints(row: Resource, given: Document) -> list[Complaint]:
    """Returns the errors of an object of the kind that `row` describes: unknown fields first, then the server's."""
    unknown: list[str] = []
    try:
        document = normalise(row.struct, given, unknown)
    except TypeMismatch as error:
        return [Complaint(error.path, "RefusedByAPI", str(error))]
    fill_in(row, document)
    errors = [*metadata(document, row.name_check, namespaced=row.namespaced), *row.validate(document)]
    return [*(_unknown_field(row.struct, path) for path in unknown), *map(_refusal, errors)]


def fill_in(row: Resource, document: Document) -> None:
    """Sets what the server sets before validation. Keeps the status, which a server would drop: here nothing else writes it."""
    if row.namespaced:
        document["metadata"].setdefault("namespace", DEFAULT_NAMESPACE)
    row.default(document)
    status = document.get("status")
    row.life.prepare_create(document)
    if status is not None:
        document["status"] = status


def _unknown_field(struct: Struct, path: str) -> Complaint:
    rest = path
    while True:
        step, _, below = rest.partition(".")
        field = struct.fields.get(step.partition("[")[0])
        shape = field.shape if field is not None else None
        inner = shape.element if isinstance(shape, ListOf) else shape
        if not below or not isinstance(inner, Struct):
            return Complaint(path, "UnknownField", f"unknown field{did_you_mean(rest, struct.fields)}")
        struct, rest = inner, below


def _refusal(error: FieldError) -> Complaint:
    if not error.supported or not isinstance(error.value, str) or not error.value:
        return Complaint(error.field, "RefusedByAPI", error.text)
    return Complaint(error.field, "UnknownValue", f"{error.text}{did_you_mean(error.value, error.supported)}")
