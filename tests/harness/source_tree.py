"""The modules of the package and what they import, read from their source."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nodeagent"


@cache
def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Each of them, and what groups them. `ast.walk` would look at every expression, too, of which there are ten times as many."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, part, ())


@cache
def statements_that_import(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Wherever in a module they stand; read once for all rules."""
    return [node for node in statements(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


@cache
def imports(path: Path) -> list[str]:
    return list(names_imported(path))


def names_imported(path: Path) -> Iterator[str]:
    for node in statements_that_import(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield node.module or ""


def inside(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def import_graph(top: Path, root: Path = ROOT) -> dict[str, set[str]]:
    """Module → modules below `top` it imports, wherever in it the import stands; that of a package is of its __init__."""
    names = {
        path: ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for path in top.rglob("*.py")
    }
    known = set(names.values())
    graph: dict[str, set[str]] = {}
    for path, own in names.items():
        found = graph.setdefault(own, set())
        for node in statements_that_import(path):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names} & known
            elif node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & known
                found |= inner or ({node.module} & known)
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One circle for each module that ends up at itself."""
    found = []
    done: set[str] = set()

    def follow(module: str, path: list[str]) -> None:
        if module in path:
            found.append([*path[path.index(module) :], module])
            return
        if module in done:
            return
        for below in sorted(graph.get(module, ())):
            follow(below, [*path, module])
        done.add(module)

    for module in sorted(graph):
        follow(module, [])
    return found


def within(package: str, graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph of what stands directly in a package: files and folders, each folder as one."""
    prefix = package + "."
    found: dict[str, set[str]] = {}
    for own, others in graph.items():
        if own.startswith(prefix):
            part = own.removeprefix(prefix).split(".")[0]
            below = {other.removeprefix(prefix).split(".")[0] for other in others if other.startswith(prefix)}
            found.setdefault(part, set()).update(below - {part})
    return found
