"""What is declared in pyproject.toml is what is imported, and what must not be loaded is out of reach."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.harness.source_tree import ROOT, statements

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUN_NOT_IMPORTED = {
    "ruff": "make lint",
    "mypy": "make lint",
    "types-pyyaml": "read by mypy",
    "pytest-timeout": "a plugin: pyproject.toml sets `timeout`",
    "hatchling": "builds the package for make wheel and make deb",
    "editables": "of hatchling, for an installation that is this tree",
    "sphinx": "make site",
    "myst-parser": "make site: reads Markdown",
    "furo": "make site: how pages look",
    "check-jsonschema": "run by tests/repo/test_workflows.py",
}
"""What development needs and no test imports, with what runs it."""
LOADED_FROM_THE_SYSTEM = {"nftables": "Debian's python3-nftables, only by `nodeagent check`, where it is there"}
SECOND_READER = ROOT / "nodeagent" / "cli" / "second_reader.py"
SOURCES = {
    "runtime": sorted((ROOT / "nodeagent").rglob("*.py")),
    "dev": sorted(path for place in ("tests", "vagrant", "systemd") for path in (ROOT / place).rglob("*.py")),
}


def normal(name: str) -> str:
    """The name of a distribution as they are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: Iterable[str]) -> set[str]:
    return {normal(re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0]) for requirement in requirements}


RUNTIME = declared(PROJECT["project"]["dependencies"])
DEV = declared(PROJECT["dependency-groups"]["dev"])


def imported_names(source: str) -> set[str]:
    """Modules that some statement imports, wherever it stands; of `from a import b` both ``a`` and ``a.b``."""
    names = set()
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@cache
def names_in(path: Path) -> set[str]:
    return imported_names(path.read_text())


def roots_in(path: Path) -> set[str]:
    return {name.split(".")[0] for name in names_in(path)}


def held_against(paths: Iterable[Path], known: set[str]) -> tuple[set[str], set[str]]:
    """(imported packages that nothing in `known` provides, distributions in `known` that are imported)"""
    own = {"nodeagent", "tests", *LOADED_FROM_THE_SYSTEM} | {path.stem for path in SOURCES["dev"]}
    providers = {root: {normal(name) for name in names} for root, names in packages_distributions().items()}
    roots = set[str]().union(*(roots_in(path) for path in paths)) - own - sys.stdlib_module_names
    undeclared = {root for root in roots if not providers.get(root, set()) & known}
    return undeclared, set[str]().union(*(providers.get(root, set()) for root in roots)) & known


def test_the_package_declares_exactly_what_it_imports() -> None:
    assert held_against(SOURCES["runtime"], RUNTIME) == (set(), RUNTIME)


def test_the_tests_declare_exactly_what_they_import() -> None:
    undeclared, used = held_against(SOURCES["dev"], RUNTIME | DEV)
    assert not undeclared
    assert used & DEV == DEV - RUN_NOT_IMPORTED.keys()
    assert RUN_NOT_IMPORTED.keys() <= DEV


def test_both_directions_are_seen(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("def f():\n    import yarl.x\n    from aiohttp import web\n")
    assert held_against([tmp_path / "some.py"], {"aiohttp", "pydantic"}) == ({"yarl"}, {"aiohttp"})


@pytest.mark.parametrize(
    "source",
    [
        "if a:\n pass\nelif b:\n import x\n",
        "for a in b:\n pass\nelse:\n import x\n",
        "while a:\n with b:\n  import x\n",
        "try:\n pass\nexcept a:\n import x\n",
        "try:\n pass\nexcept* a:\n pass\nelse:\n import x\n",
        "try:\n pass\nfinally:\n import x\n",
        "match a:\n case b:\n  import x\n",
        "class A:\n async def f(self):\n  import x\n",
    ],
)
def test_an_import_is_seen_wherever_it_stands(source: str) -> None:
    assert imported_names(source) == {"x"}


def reachable(start: str) -> set[Path]:
    """The files of ours that importing a module can lead to, imports inside functions included."""
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        parts = waiting.pop().split(".")
        for path in (ROOT.joinpath(*parts).with_suffix(".py"), ROOT.joinpath(*parts, "__init__.py")):
            if parts[0] == "nodeagent" and path.exists() and path not in found:
                found.add(path)
                waiting += names_in(path)
    return found


@pytest.mark.parametrize("entry", ["nodeagent.cli.run", "nodeagent.daemon.agent", "nodeagent.cli.apiserver"])
def test_no_daemon_can_come_to_load_what_is_under_gpl_2(entry: str) -> None:
    """libnftables and its bindings are GPL-2.0-only; this project is Apache-2.0."""
    files = reachable(entry)
    assert len(files) > 50
    assert not {path for path in files if "nftables" in roots_in(path) or path == SECOND_READER}


def test_the_command_that_may_load_it_is_seen_to() -> None:
    assert SECOND_READER in reachable("nodeagent.cli.check")


def test_the_agent_loads_no_library_that_only_people_need() -> None:
    code = "import sys, nodeagent.daemon.agent; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"nftables", "rich", "click", "jwt", "dns", "pyroute2"} & set(done.stdout.split())


def test_an_agent_that_follows_an_api_server_loads_nothing_for_manifests() -> None:
    code = "import sys, nodeagent.cli.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "nodeagent.proxy.source.object_source" in loaded
    assert not {"nodeagent.kinds", "nodeagent.proxy.source.manifests.manifest_source", "watchfiles"} & loaded


def test_the_process_that_follows_connections_loads_nothing_that_it_does_not_use() -> None:
    """An agent starts it again and again, on a bounded part of a core."""
    code = "import sys, nodeagent.cli.follow_sample; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "click", "ssl", "logging"} & set(done.stdout.split())
