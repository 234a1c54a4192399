"""Which objects a field selector selects, as kube-apiserver 1.36 does: every kind, field and value that was tried there."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodeagent.apiserver.machinery.reading import Selection
from nodeagent.apiserver.machinery.selectors import parse_fields
from nodeagent.apiserver.storage.records import Record, assemble, draft
from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.decoding import normalise
from nodeagent.kinds.description.resources import FieldReader, Resource
from nodeagent.kinds.description.status import ApiError

RECORDED = json.loads(Path(__file__).with_name("field_selectors.json").read_text())


def row(name: str) -> Resource:
    plural, _, group = name.partition(".")
    return next(row for row in all_kinds().rows if row.plural == plural and (not group or row.group == group))


def records(resource: Resource) -> list[Record]:
    """The recorded objects, as the store keeps them."""
    struct = resource.stored_struct or resource.struct
    found = []
    for given in RECORDED["objects"][resource.stored_in]:
        meta = {**given["metadata"], "resourceVersion": "1"}
        body = assemble(draft(normalise(struct, {**given, "metadata": meta})), 1)
        found.append(Record(resource.path(meta.get("namespace", ""), meta["name"]), 1, body))
    return found


@pytest.mark.parametrize("kind", RECORDED["selected"])
def test_field_selectors_select(kind: str) -> None:
    resource = row(kind)
    reader, stored = FieldReader(resource), records(resource)
    found: dict[str, Any] = {}
    for text in RECORDED["selected"][kind]:
        # Commas in values are escaped, as clients do.
        fields = parse_fields(text.replace(",", "\\,"), resource.selectable, resource.unselectable)
        found[text] = sorted(
            record.name for record in stored if Selection("", fields=fields, reader=reader).matches(record)
        )
    assert found == RECORDED["selected"][kind]


@pytest.mark.parametrize("kind", RECORDED["refused"])
def test_unsupported_field_selectors_are_refused_in_kubernetes_words(kind: str) -> None:
    resource = row(kind)
    for name in RECORDED["refused"][kind]:
        with pytest.raises(ApiError) as found:
            parse_fields(f"{name}=x", resource.selectable, resource.unselectable)
        assert (found.value.code, found.value.message) == (400, RECORDED["words"][kind].replace("FIELD", name))


def test_every_kind_was_tried() -> None:
    assert {(found.group, found.plural) for found in map(row, RECORDED["refused"])} == {
        (found.group, found.plural) for found in all_kinds().rows
    }


def test_objects_without_a_namespace_match_an_empty_namespace() -> None:
    """Of a kind that has no fields of its own; kube-apiserver refuses it for nodes and namespaces."""
    resource = row("servicecidrs")
    fields = parse_fields("metadata.namespace=", resource.selectable, resource.unselectable)
    assert Selection(fields=fields).matches(Record("kubernetes", 1, b"{}"))
