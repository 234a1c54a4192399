"""A kind more is a file more: everything else reads its row."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent import kinds
from nodeagent.apiserver.addresses.allocation import Allocator
from nodeagent.apiserver.addresses.ranges import PortRange
from nodeagent.apiserver.addresses.service_ranges import ServiceRanges
from nodeagent.apiserver.api.authorization import READERS, User, authorize, role_of
from nodeagent.apiserver.api.discovery import api_groups, api_resources
from nodeagent.apiserver.api.table_output import table_of
from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.machinery.request_worker import Worker
from nodeagent.apiserver.machinery.schema.openapi import OpenApi
from nodeagent.apiserver.machinery.schema.protobuf import supports
from nodeagent.apiserver.machinery.write_rules import DeleteOptions
from nodeagent.apiserver.service_writes import writes_by_collection
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.catalog import rows
from nodeagent.kinds.description.resources import Catalog
from nodeagent.kinds.description.status import ApiError

WIDGET = '''
"""Widget (toys.example.com/v1)."""

from nodeagent.kinds.description.life import KindLife
from nodeagent.kinds.description.printing import AGE, Column, Printer, name_and_age
from nodeagent.kinds.description.resources import Subresource, Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.description.status import invalid

SHAPES = read_shapes(r"""
WidgetSpec = com.example.toys.v1 : WidgetSpec says what a widget is.
  size  int32 #1 : How large it is.

Widget = com.example.toys.v1 : Widget is a thing.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      WidgetSpec #2 : What it is.
""")


def default_widget(widget):
    widget["spec"].setdefault("size", 1)


def validate_widget(widget):
    size = widget["spec"]["size"]
    return [invalid("spec.size", size, "must be less than 10")] if size >= 10 else []


class WidgetLife(KindLife):
    def grace_seconds(self, live, asked):
        return live["spec"]["size"]


def cells(widget, now):
    name, age = name_and_age(widget, now)
    return [name, widget["spec"]["size"], age]


ROWS = (
    Resource(
        group="toys.example.com", plural="widgets", singular="widget", kind="Widget", struct=SHAPES["Widget"],
        short_names=("wg",), namespaced=False, printer=Printer((Column("Size", described_by="spec.size"), AGE), cells),
        default=default_widget, validate=validate_widget, generation_of=("spec",), confidential=True,
        further_subresources=(Subresource("polish", ("create",), group="toys.example.com", kind="Polish"),),
        own_life=WidgetLife(),
    ),
)
'''


class RandomSource:
    """The same every time."""

    def suffix(self, length: int) -> str:
        return "a" * length

    def uid(self) -> str:
        return "u"

    def randrange(self, start: int, stop: int) -> int:
        return min(start, stop)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """Every kind and one more, which is a file beside the others."""
    (tmp_path / "widget.py").write_text(WIDGET)
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    yield Catalog(rows.__wrapped__())
    del sys.modules["nodeagent.kinds.widget"]


def test_a_new_kind_is_published(catalog: Catalog) -> None:
    assert [group["name"] for group in api_groups(catalog)["groups"]][-1] == "toys.example.com"
    listed = api_resources("toys.example.com", catalog.groups()["toys.example.com"])["resources"]
    assert [(entry["name"], entry["kind"], entry["verbs"]) for entry in listed[1:]] == [
        ("widgets/polish", "Polish", ["create"])
    ]
    schema = OpenApi(catalog).document("v3/apis/toys.example.com/v1")
    assert schema is not None
    assert "com.example.toys.v1.WidgetSpec" in json.loads(schema)["components"]["schemas"]
    assert supports(catalog.named("widgets", "toys.example.com").struct)


def test_readers_see_it_as_its_row_says(catalog: Catalog) -> None:
    row = catalog.named("widgets", "toys.example.com")
    reader = User("guest", role_of([READERS]))
    with pytest.raises(ApiError, match="cannot list"):
        authorize(reader, "list", "/", row.plural, group=row.group, confidential=row.confidential)


def test_a_new_kind_is_written_and_shown_as_its_file_says(catalog: Catalog) -> None:
    async def scenario() -> None:
        row = catalog.named("widgets", "toys.example.com")
        async with Store(Log(":memory:"), clock=lambda: 0.0) as store:
            allocator = Allocator(store, ServiceRanges(store, ()), PortRange(1, 9), RandomSource(), lambda *_: b"")
            writes = writes_by_collection(catalog, allocator)
            registry = Registry(store, catalog, writes, chance=RandomSource(), clock=lambda: 0.0, worker=Worker())
            made = await registry.create(row, "", {"metadata": {"name": "w"}}, WriteOptions())
            document = made.record.document()
            assert (document["spec"], document["metadata"]["generation"]) == ({"size": 1}, 1)
            larger = await registry.update(row, "", "w", {**document, "spec": {"size": 2}}, WriteOptions())
            assert larger.record.document()["metadata"]["generation"] == 2
            with pytest.raises(ApiError, match="must be less than 10"):
                await registry.update(row, "", "w", {"metadata": {"name": "w"}, "spec": {"size": 10}}, WriteOptions())
            table = table_of(row, [larger.record], version="v1", revision=2, now=0.0)
            assert table["rows"][0]["cells"] == ["w", 2, "0s"]
            marked = await registry.delete(row, "", "w", DeleteOptions())
            assert not marked.gone
            assert marked.record.document()["metadata"]["deletionGracePeriodSeconds"] == 2

    asyncio.run(scenario())
