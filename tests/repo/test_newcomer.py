"""How many source files a newcomer has to find: for a field of a Service, as CONTRIBUTING.md promises it."""

import ast
from functools import cache
from pathlib import Path

import msgspec
import pytest

from nodeagent.model.objects import ServiceSpec
from tests.harness.source_tree import PACKAGE, ROOT

MOST_FILES = 6
ROOMS = ("kinds", "model", "proxy")
"""Where packets are decided. Commands that explain a Service may look at any of its fields."""
FIELDS = {one.name: one.encode_name for one in msgspec.structs.fields(ServiceSpec)}
OF_ADDRESSES = frozenset({"cluster_ip", "cluster_ips", "external_ips", "ip_families", "ports", "type"})
"""They say where a Service answers: allocation, conflicts and protection read them as well."""


def spelled_in(file: Path) -> frozenset[str]:
    """The attributes and the texts in the code of a file; comments and docstrings do not count."""
    found, texts = set[str](), set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Constant(value=str(text)) if " " not in text:
                texts.update(text.split("."))
    return frozenset(found | texts)


@cache
def files() -> dict[Path, frozenset[str]]:
    return {file: spelled_in(file) for room in ROOMS for file in sorted((PACKAGE / room).rglob("*.py"))}


def files_of(field: str) -> list[str]:
    """The files that spell a field, as Python or as JSON has it, and the one that describes it."""
    names = {field, FIELDS[field]}
    described = PACKAGE / "kinds" / "service" / "__init__.py"
    found = {file for file, words in files().items() if names & words} | {described}
    return [str(file.relative_to(ROOT)) for file in sorted(found)]


@pytest.mark.parametrize("field", sorted(FIELDS.keys() - OF_ADDRESSES))
def test_a_field_of_a_service_is_in_few_files_and_contributing_names_them(field: str) -> None:
    found = files_of(field)
    assert len(found) <= MOST_FILES, found
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("**A field of a Service")[2].partition("\n\n")[0]
    named = [word for word in section.split("`") if word.startswith("nodeagent/")]
    unnamed = [file for file in found if not any(file.startswith(word) for word in named)]
    assert len(unnamed) <= 1, unnamed


def test_the_count_can_fail() -> None:
    assert len(files_of("ports")) > MOST_FILES
