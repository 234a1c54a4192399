"""Imports point one way, and three houses know nothing of each other: read from the source."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.harness.source_tree import PACKAGE, ROOT, circles, import_graph, imports, inside, modules, within

MOST_ROOMS = 12
GROUND = frozenset({"model", "wire", "runtime", "kinds"})
HOUSES = frozenset({"proxy", "apiserver", "names"})
ALLOWED = {
    "model": frozenset[str](),
    "wire": frozenset({"model"}),
    "runtime": frozenset({"model"}),
    "kinds": frozenset({"model"}),
    **dict.fromkeys(HOUSES, GROUND),
    "diagnosis": GROUND | {"proxy"},
    "lab": GROUND | {"proxy"},
    "config": GROUND,
    "daemon": GROUND | {"proxy", "names", "config", "diagnosis"},
    "cli": GROUND | HOUSES | {"diagnosis", "lab", "config", "daemon"},
    "__main__": frozenset({"cli"}),
    "__init__": frozenset[str](),
}
"""Room at the top → the rooms it may import (itself always, and the version from `nodeagent`)."""

STAGES = {
    "proxy": {
        "source": frozenset[str](),
        "translate": frozenset[str](),
        "engine": frozenset({"translate"}),
        "dataplane": frozenset[str](),
        "observe": frozenset[str](),
    },
    "proxy/dataplane": {
        "program": frozenset[str](),
        "image": frozenset({"program"}),
        "driver": frozenset({"program", "image", "errors", "worker_thread"}),
    },
    "apiserver": {
        "storage": frozenset[str](),
        "live_servers": frozenset({"storage"}),
        "addresses": frozenset({"storage"}),
        "machinery": frozenset({"storage", "addresses"}),
        "controllers": frozenset({"storage", "live_servers", "addresses", "machinery"}),
        "api": frozenset({"storage", "machinery"}),
    },
}
"""Place → a room of it → the rooms of this place it may import (itself always). Rooms without a row put others together."""

LIBRARIES = {
    "proxy": frozenset({"aiohttp", "msgspec", "watchfiles", "yaml", "yarl"}),
    "apiserver": frozenset({"aiohttp", "grpclib", "jwt", "msgspec", "yaml", "yarl"}),
    "names": frozenset({"msgspec"}),
}
"""House → the libraries it needs, and with what they bring all it needs."""
EVERY_LIBRARY = frozenset(
    {
        "aiohttp",
        "click",
        "grpclib",
        "jwt",
        "msgspec",
        "nftables",
        "prometheus_client",
        "pydantic",
        "rich",
        "watchfiles",
        "yaml",
        "yarl",
    }
)

FENCED = {
    "pydantic": ("config/",),
    "rich": ("cli/", "lab/"),
    "click": ("cli/",),
    "nftables": ("cli/second_reader.py",),
    "aiohttp": ("proxy/source/", "proxy/observe/", "runtime/serving/", "apiserver/"),
    "jwt": ("apiserver/api/",),
    "grpclib": ("apiserver/storage/etcd/rpc.py",),
    "watchfiles": ("proxy/source/manifests/",),
    "yaml": ("wire/yaml/", "proxy/source/", "config/", "apiserver/", "cli/", "lab/"),
}
"""Library → the only places that may import it."""


def room(path: Path, place: Path = PACKAGE) -> str:
    return path.relative_to(place).parts[0].removesuffix(".py")


def against_the_layers(path: Path) -> Iterator[str]:
    """What a module imports that it must not."""
    own, where = room(path), inside(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "nodeagent" and len(parts) > 1 and parts[1] != own and parts[1] not in ALLOWED[own]:
            yield f"{where}: {own} must not import {name}"
        places = FENCED.get(parts[0])
        if places and not where.startswith(places):
            yield f"{where}: {parts[0]} belongs to {places}"


def test_imports_point_down_only() -> None:
    assert [found for path in modules() for found in against_the_layers(path)] == []


def test_an_import_that_points_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALLOWED, "proxy", frozenset({"wire", "runtime"}))
    monkeypatch.setitem(FENCED, "yaml", ("wire/yaml/",))

    found = [line for path in modules() for line in against_the_layers(path)]

    assert any(line.startswith("proxy/") and "proxy must not import nodeagent.model" in line for line in found)
    assert any(line.startswith("config/") and "yaml belongs to" in line for line in found)


def rooms() -> set[str]:
    return {room(path) for path in modules()} - {"__init__", "__main__"}


def test_the_top_has_few_rooms_and_each_has_a_rule() -> None:
    assert len(rooms()) <= MOST_ROOMS
    assert rooms() == set(ALLOWED) - {"__init__", "__main__"}


def test_rules_allow_no_circle_and_no_way_from_house_to_house() -> None:
    assert circles({own: set(others) for own, others in ALLOWED.items()}) == []
    for house in HOUSES:
        assert not ALLOWED[house] & (set(ALLOWED) - GROUND)


def against_the_stages(place: str, rules: dict[str, frozenset[str]]) -> Iterator[str]:
    prefix = ["nodeagent", *place.split("/")]
    for path in (PACKAGE / place).rglob("*.py"):
        own = room(path, PACKAGE / place)
        for name in imports(path) if own in rules else ():
            parts = name.split(".")
            if parts[: len(prefix)] == prefix and len(parts) > len(prefix):
                other = parts[len(prefix)]
                if other != own and other not in rules[own]:
                    yield f"{inside(path)}: {own} must not import {name}"


@pytest.mark.parametrize("place", STAGES)
def test_rooms_of_a_house_import_what_their_rule_allows(place: str) -> None:
    assert list(against_the_stages(place, STAGES[place])) == []


@pytest.mark.parametrize("place", STAGES)
def test_every_rule_is_of_a_room_that_is_there(place: str) -> None:
    assert set(STAGES[place]) <= {room(path, PACKAGE / place) for path in (PACKAGE / place).rglob("*.py")}


def test_a_house_that_is_entered_from_the_side_is_seen() -> None:
    rules = {"engine": frozenset[str]()}
    assert any(
        "engine must not import nodeagent.proxy.translate" in line for line in against_the_stages("proxy", rules)
    )


REFUSING = """
import importlib, pkgutil, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        refused = {refused!r}
        if name.split(".")[0] in refused or ".".join(name.split(".")[:2]) in refused:
            raise ImportError(f"{{name}} is refused")

sys.meta_path.insert(0, Refusing())
house = importlib.import_module("nodeagent.{house}")
for found in pkgutil.walk_packages(house.__path__, house.__name__ + "."):
    if not found.name.endswith(".__main__"):
        importlib.import_module(found.name)
"""


def import_alone(house: str, refused: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Every module of a house, in an interpreter that has not what is refused."""
    code = REFUSING.format(house=house, refused=set(refused))
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("house", sorted(HOUSES))
def test_a_house_is_imported_without_the_others_and_without_their_libraries(house: str) -> None:
    others = {f"nodeagent.{other}" for other in (HOUSES | {"diagnosis", "lab", "config", "daemon", "cli"}) - {house}}
    done = import_alone(house, others | (EVERY_LIBRARY - LIBRARIES[house]))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("house", sorted(HOUSES))
def test_a_library_that_a_house_needs_is_missed(house: str) -> None:
    done = import_alone(house, {"msgspec"})
    assert "msgspec is refused" in done.stderr


def test_the_package_imports_no_tests() -> None:
    assert [path for path in modules() for name in imports(path) if name.split(".")[0] == "tests"] == []


def test_hosts_and_links_know_nothing_of_the_lab_they_are_in() -> None:
    inner = [path for path in modules() if path.parent == PACKAGE / "lab" / "net"]
    assert inner
    for path in inner:
        for name in imports(path):
            known = not name.startswith("nodeagent.lab") or name.startswith("nodeagent.lab.net")
            assert known, f"{path} imports {name}"


KINDS = sorted(
    path
    for path in (PACKAGE / "kinds").iterdir()
    if path.stem not in ("__init__", "__pycache__", "catalog", "description")
)


@pytest.mark.parametrize("path", KINDS, ids=lambda path: path.stem)
def test_a_kind_imports_no_other_kind(path: Path) -> None:
    prefix = ["nodeagent", "kinds"]
    for source in path.rglob("*.py") if path.is_dir() else [path]:
        for name in imports(source):
            parts = name.split(".")
            others = parts[: len(prefix)] == prefix and len(parts) > len(prefix)
            assert not others or parts[len(prefix)] in (path.stem, "description"), f"{source} imports {name}"


NAMES_OF_A_RESOURCE = ("plural", "singular", "stored_in")
NAME_OF_A_RESOURCE = re.compile("|".join(NAMES_OF_A_RESOURCE))


def asks_by_name(source: str) -> list[int]:
    """Lines that compare the name of a resource with a constant."""
    found = []
    for node in ast.walk(ast.parse(source)) if NAME_OF_A_RESOURCE.search(source) else ():
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            names = any(isinstance(side, ast.Attribute) and side.attr in NAMES_OF_A_RESOURCE for side in sides)
            if names and any(isinstance(side, ast.Constant | ast.Tuple) for side in sides):
                found.append(node.lineno)
    return found


def test_shared_code_of_the_api_server_names_no_kind() -> None:
    rooms_of_all = [PACKAGE / "kinds" / "description"]
    rooms_of_all += [PACKAGE / "apiserver" / room for room in ("machinery", "api", "storage", "addresses")]
    found = [
        f"{path}:{line}"
        for place in rooms_of_all
        for path in place.rglob("*.py")
        for line in asks_by_name(path.read_text())
    ]
    assert found == [], "what is peculiar to a kind is said by its row"


def test_asking_by_name_is_seen() -> None:
    seen = 'if resource.plural == "pods" or row.plural in ("a", "b"):\n    pass'
    fine = 'if resource.plural == other.plural or shape.kind == "Table":\n    pass'
    assert asks_by_name(seen) == [1, 1]
    assert asks_by_name(fine) == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(import_graph(PACKAGE)) == []


def test_no_folder_imports_itself_by_way_of_others() -> None:
    graph = import_graph(PACKAGE)
    packages = [".".join(path.parent.relative_to(ROOT).parts) for path in modules() if path.name == "__init__.py"]
    assert {package: found for package in packages if (found := circles(within(package, graph)))} == {}


def test_a_circle_of_folders_is_found_where_modules_have_no_circle() -> None:
    graph = {"p.a.one": {"p.b.two"}, "p.b.two": set[str](), "p.b.three": {"p.a.four"}, "p.a.four": set[str]()}
    assert circles(graph) == []
    assert circles(within("p", graph)) == [["a", "b", "a"]]


def test_the_graph_sees_imports_inside_functions(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "__init__.py").touch()
    (made / "one.py").write_text("from made import two\n")
    (made / "two.py").write_text("def late():\n    from made.one import thing\n")
    assert circles(import_graph(made, tmp_path)) == [["made.one", "made.two", "made.one"]]


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c", "b"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
