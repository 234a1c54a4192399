"""Table output (meta.k8s.io/v1): the server-side printing behind `kubectl get`. Pure."""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from nodeagent.apiserver.api import metadata_only
from nodeagent.apiserver.storage.records import Record
from nodeagent.kinds.description.documents import Document, decode
from nodeagent.kinds.description.printing import Column
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shapes import ListOf, Struct

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])


def table_of(
    resource: Resource,
    records: Sequence[Record],
    *,
    version: str,
    revision: int,
    now: float,
    headed: bool = True,
    include: str = "Metadata",
    list_meta: Document | None = None,
) -> Document:
    """Returns a Table of the records. `include` (the parameter includeObject) is None, Metadata or Object."""
    rows = [row_of(resource, record, version=version, now=now, include=include) for record in records]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version or 'v1'}",
        "metadata": {"resourceVersion": str(revision), **(list_meta or {})},
        "columnDefinitions": column_definitions(resource) if headed else None,
        "rows": rows,
    }


def row_of(resource: Resource, record: Record, *, version: str, now: float, include: str) -> Document:
    """Returns the row of an object; parts of the stored object that are shown as they are stay encoded (`msgspec.Raw`)."""
    if include == "Object" and resource.converts:
        document = record.document()
        shown = {"kind": resource.kind, "apiVersion": resource.group_version, **resource.from_stored(document)}
        return {"cells": resource.printer.cells(document, now), "object": shown}
    row: Document = {"cells": resource.printer.cells(_without_managed_fields(record.body), now)}
    if include == "Object":
        row["object"] = msgspec.Raw(resource.opening + record.body[1:])
    elif include != "None":
        row["object"] = msgspec.Raw(metadata_only.partial_of(record.body, version or "v1"))
    return row


def _without_managed_fields(body: bytes) -> Document:
    """Returns a decoded object without its managedFields: no column shows them, and they may be most of it."""
    parts = _parts.decode(body)
    metadata = _parts.decode(parts.pop("metadata"))
    metadata.pop("managedFields", None)
    return {"metadata": _decoded(metadata), **_decoded(parts)}


def _decoded(parts: dict[str, msgspec.Raw]) -> Document:
    return {name: decode(part) for name, part in parts.items()}


def bookmark_row(resource: Resource, version: str, meta: Document) -> Document:
    """Returns the row of a bookmark: empty cells, and metadata with the resourceVersion that a watch has reached."""
    partial = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": meta}
    return {"cells": [None] * len(column_definitions(resource)), "object": partial}


def column_definitions(resource: Resource) -> list[Document]:
    """Returns the columns of a kind, described by the documentation of the fields that they show."""
    name = Column("Name", described_by="metadata.name")
    columns = (name, *resource.printer.columns) if resource.printer.named else tuple(resource.printer.columns)
    struct = resource.stored_struct or resource.struct
    return [
        {
            "name": column.name,
            "type": column.kind,
            "format": "name" if column.described_by == "metadata.name" else "",
            "description": column.description or describe(struct, column.described_by),
            "priority": column.priority,
        }
        for column in columns
    ]


@lru_cache(maxsize=256)
def describe(struct: Struct, path: str) -> str:
    """Returns the documentation of the field at a path; empty if there is no such field."""
    doc = ""
    shape: object = struct
    for step in path.split("."):
        while isinstance(shape, ListOf):
            shape = shape.element
        if not isinstance(shape, Struct) or step not in shape.fields:
            return doc
        found = shape.fields[step]
        doc, shape = found.doc, found.shape
    return doc
