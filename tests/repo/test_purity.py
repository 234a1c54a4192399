"""Decisions do no input or output: modules that call themselves pure import nothing that could."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.harness.source_tree import imports, inside, modules

IMPURE = frozenset({"asyncio", "os", "time", "random", "logging", "threading", "subprocess", "pathlib"})
THIRD_PARTY = frozenset({"aiohttp", "pydantic", "pyroute2", "nftables", "click", "rich", "watchfiles", "yaml"})
PURE = re.compile(r"(?:^|[\s(;])pure(?:\.|\)[.:]?|[:;] [^.]*\.)(?=\s|$)", re.IGNORECASE)
"""What a module says of itself, or a package of all its modules: `Pure.`, `(pure)`, `Pure: no I/O here.`"""
PURE_BUT_FOR = {
    "apiserver/api/yaml_bodies.py": {"yaml"},
    "apiserver/server_settings.py": {"pathlib"},
    "model/addresses.py": {"socket"},
    "wire/netlink/bridges.py": {"socket"},
}
"""Pure modules that use something of these as a value: a path, a parser, a number."""

LEAST_PURE = 200


def says_pure(path: Path) -> bool:
    """A package says it in the first paragraph: further down it speaks of single modules."""
    text = path.read_text()
    if "pure" not in text.lower():
        return False  # most files: every worker asks for all of them
    if text.startswith('"""'):  # which is all that is parsed of it
        text = text[: text.index('"""', 3) + 3]
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return PURE.search(docstring.split("\n\n")[0] if path.name == "__init__.py" else docstring) is not None


@cache
def pure_packages() -> frozenset[Path]:
    return frozenset(path.parent for path in modules() if path.name == "__init__.py" and says_pure(path))


def is_pure(path: Path) -> bool:
    """By its own docstring, or by that of a package around it."""
    return bool(pure_packages() & set(path.parents)) or (path.name != "__init__.py" and says_pure(path))


PURE_MODULES = [path for path in modules() if is_pure(path)]


def test_decisions_are_pure_and_say_so() -> None:
    """A room that forgot to say it would be held to nothing."""
    whole = {inside(folder) for folder in pure_packages()}
    assert {
        "model",
        "proxy/translate",
        "proxy/dataplane/program",
        "proxy/dataplane/image",
        "diagnosis/explain",
        "diagnosis/simulator",
        "wire/dns",
        "wire/netlink/nf_tables",
        "wire/netlink/uapi",
        "names/zone",
    } <= whole
    assert len(PURE_MODULES) > LEAST_PURE


@pytest.mark.parametrize("path", PURE_MODULES, ids=inside)
def test_a_pure_module_does_no_input_or_output(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & (IMPURE | THIRD_PARTY | {"socket"}) - PURE_BUT_FOR.get(inside(path), set())
