"""Imports point one way, and pure modules stay pure: read from the source, not from a run."""

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nodeagent"

SIBLINGS = frozenset({"kube", "dataplane", "observe", "controlplane", "dns"})
ALLOWED = {
    "model": frozenset[str](),
    "translate": frozenset({"model"}),
    "engine": frozenset({"model", "translate"}),
    "netlink": frozenset({"model"}),
    "files": frozenset({"model"}),
    "figures": frozenset[str](),
    "serving": frozenset[str](),
    "interrupts": frozenset[str](),
    "imports": frozenset[str](),
    "logs": frozenset({"model"}),
    **{sibling: frozenset({"model", "netlink", "files", "figures", "logs", "serving"}) for sibling in SIBLINGS},
    "trace": frozenset({"model", "netlink", "dataplane"}),
    "checks": frozenset({"model", "netlink", "dataplane"}),
    "config": frozenset({"model", "files"}),
    "takeover": frozenset({"model", "config", "__init__"}),
    "lab": frozenset({"model", "interrupts", "imports", "netlink", "kube", "observe", "serving"}),
    "connectivity": frozenset({"model", "kube", "dns"}),
    "explain": frozenset({"model", "translate"}),
    "part_options": frozenset({"model", "translate", "config", *SIBLINGS}),
    "agent_view": frozenset({"model", "translate", "engine", "config", "part_options", *SIBLINGS, "__init__"}),
    "agent": frozenset({"model", "translate", "engine", "config", "part_options", "agent_view", *SIBLINGS}),
    "daemon": frozenset({"model", "config", "agent", "dataplane", "observe", "logs"}),
    "cli": frozenset(
        {
            *(
                "model",
                "interrupts",
                "imports",
                "files",
                "logs",
                "serving",
                "translate",
                "engine",
                "config",
                "part_options",
                "agent",
                "daemon",
                "lab",
            ),
            *("explain", "trace", "checks", "takeover", "connectivity"),
            *SIBLINGS,
        }
    ),
    "__main__": frozenset({"cli"}),
    "__init__": frozenset[str](),
}
"""Stage → the stages it may import (itself always)."""

ROOMS = {
    "documents": frozenset[str](),
    "moments": frozenset[str](),
    "status": frozenset({"documents"}),
    "storage": frozenset({"documents"}),
    "living": frozenset({"documents", "storage"}),
    "addresses": frozenset({"documents", "status", "storage"}),
    "machinery": frozenset({"documents", "moments", "status", "storage", "addresses"}),
    "kinds": frozenset({"documents", "moments", "status", "storage", "addresses", "machinery"}),
    "controllers": frozenset(
        {"documents", "moments", "status", "storage", "living", "addresses", "machinery", "kinds"}
    ),
    "api": frozenset({"documents", "moments", "status", "storage", "machinery", "kinds"}),
}
"""Room of the API server → the rooms it may import (itself always). What composes them may import all of them."""
COMPOSITION = frozenset(
    {
        "address_objects",
        "bootstrap",
        "manifest_check",
        "migration",
        "scrapes",
        "scratch",
        "server",
        "server_settings",
        "service_addresses",
        "service_writes",
        "storages",
        "__init__",
    }
)

PURE = (
    "model/*.py",
    "translate/*.py",
    "explain/*.py",
    "observe/documents.py",
    *(f"takeover/{name}.py" for name in ("configuration", "found", "outlook", "placement", "steps")),
    "serving/admission.py",
    "serving/origins.py",
    "lab/page/access.py",
    "lab/page/state.py",
    "lab/report/axis.py",
    "lab/report/document.py",
    "lab/report/plot.py",
    "netlink/framing.py",
    "netlink/netfilter.py",
    "netlink/uapi/*.py",
    "netlink/nf_tables/*.py",
    *(
        f"controlplane/storage/etcd/{name}.py"
        for name in ("layout", "messages", "outcomes", "transactions", "versions")
    ),
    "netlink/route_lookup.py",
    *(
        f"checks/{name}.py"
        for name in ("facts", "finding", "hook_order", "programs", "settings", "source_ports", "written_program")
    ),
    *(
        f"trace/{name}.py"
        for name in (
            "followed",
            "journey",
            "matching",
            "narrow_ways",
            "others",
            "others_walk",
            "own_table",
            "question",
            "reasons",
            "report",
            "routes",
            "source_ports",
            "traveller",
            "xtables",
        )
    ),
    *(
        f"connectivity/{name}.py"
        for name in (
            "address_cases",
            "agents",
            "cases",
            "judgement",
            "matrix",
            "name_cases",
            "objects",
            "pod_states",
            "policy_cases",
            "requests",
            "stage",
        )
    ),
    "kube/lines.py",
    "kube/watch.py",
    "kube/watch_events.py",
    "kube/mirror.py",
    "kube/manifests.py",
    "kube/manifest_defaults.py",
    "kube/manifest_world.py",
    "dns/wire/*.py",
    "dns/zone/*.py",
    "dns/access.py",
    "dns/autopath.py",
    "dns/shares.py",
    *(
        f"dns/upstream/{name}.py"
        for name in (
            "belonging",
            "cache",
            "health",
            "limits",
            "prepared",
            "question",
            "reply",
            "resolv_conf",
            "schedule",
            "server",
            "stub_zones",
        )
    ),
    "dataplane/conntrack_stale.py",
    "dataplane/interface_claim.py",
    "dataplane/interface_drift.py",
    "dataplane/interface_plan.py",
    "dataplane/nft/belief.py",
    "dataplane/nft/carried_counts.py",
    "dataplane/nft/classes.py",
    "dataplane/nft/desired.py",
    "dataplane/nft/deviation.py",
    "dataplane/nft/element_walk.py",
    "dataplane/nft/generations.py",
    "dataplane/nft/diff.py",
    "dataplane/nft/image.py",
    "dataplane/nft/inspection.py",
    "dataplane/nft/affinity.py",
    "dataplane/nft/loads.py",
    "dataplane/nft/names_elements.py",
    "dataplane/nft/names_here.py",
    "dataplane/nft/machine.py",
    "dataplane/nft/packet.py",
    "dataplane/nft/spelling.py",
    "dataplane/nft/interpreter.py",
    "dataplane/nft/listing.py",
    "dataplane/nft/plan.py",
    "dataplane/nft/chain.py",
    "dataplane/nft/picking.py",
    "dataplane/nft/learning.py",
    "dataplane/nft/source.py",
    "dataplane/nft/program.py",
    "dataplane/nft/readback.py",
    "dataplane/nft/render.py",
    "dataplane/nft/schema.py",
    "dataplane/nft/slots.py",
    "dataplane/nft/transaction.py",
)
IMPURE = frozenset({"asyncio", "os", "time", "random", "logging", "threading", "subprocess", "pathlib"})
THIRD_PARTY = frozenset({"aiohttp", "pydantic", "pyroute2", "nftables", "click", "rich", "watchfiles", "yaml"})
FENCED = {
    "pydantic": ("config/",),
    "rich": ("cli/", "lab/"),
    "click": ("cli/",),
    "nftables": ("cli/second_reader.py",),
    "aiohttp": ("kube/", "observe/", "controlplane/", "serving/"),
    "jwt": ("controlplane/api/",),
    "grpclib": ("controlplane/storage/etcd/rpc.py",),
    "watchfiles": ("kube/",),
    "yaml": ("files/", "kube/", "config/", "controlplane/", "cli/", "lab/"),
}
"""Library → the only places that may import it."""


@cache
def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def syntax(path: Path) -> list[ast.AST]:
    """Every node of a module's source, read once for all rules."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> list[str]:
    return list(names_imported(path))


def names_imported(path: Path) -> Iterator[str]:
    for node in syntax(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield node.module or ""


def stage(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def against_the_layers(path: Path) -> Iterator[str]:
    """What a module imports that it must not."""
    own, where = stage(path), str(path.relative_to(PACKAGE))
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "nodeagent" and len(parts) > 1 and parts[1] != own and parts[1] not in ALLOWED[own]:
            yield f"{where}: {own} must not import {name}"
        places = FENCED.get(parts[0])
        if places and not where.startswith(places):
            yield f"{where}: {parts[0]} belongs to {places}"


def test_imports_point_down_only() -> None:
    assert [found for path in modules() for found in against_the_layers(path)] == []


def test_what_points_up_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALLOWED, "translate", frozenset())
    monkeypatch.setitem(FENCED, "yaml", ("files/",))

    found = [line for path in modules() for line in against_the_layers(path)]

    assert any(line.startswith("translate/") and "translate must not import nodeagent.model" in line for line in found)
    assert any(line.startswith("config/") and "yaml belongs to" in line for line in found)


SIMULATOR = frozenset({"packet", "machine", "interpreter", "spelling", "deviation"})
"""Where a packet goes through rules, and how elements read: for those who ask why, not for what programs the kernel."""
ELEMENTS = frozenset({"image", "blocks", "render", "slots", "desired", "names_elements", "affinity", "diff"})
RULES = frozenset({"chain", "classes", "learning", "loads", "names_here", "picking", "program", "schema", "source"})


def table_imports(path: Path) -> set[str]:
    """The modules of the table that a module imports."""
    graph = import_graph(PACKAGE / "dataplane" / "nft")
    own = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return {name.rpartition(".")[2] for name in graph[own]}


def test_what_programs_the_kernel_needs_no_simulator() -> None:
    for path in sorted((PACKAGE / "dataplane" / "nft").glob("*.py")):
        if path.stem not in SIMULATOR and path.stem != "__init__":
            assert not table_imports(path) & SIMULATOR, path


def test_rules_know_no_elements() -> None:
    for name in sorted(RULES):
        assert not table_imports(PACKAGE / "dataplane" / "nft" / f"{name}.py") & ELEMENTS, name


def test_the_package_imports_no_tests() -> None:
    assert [path for path in modules() for name in imports(path) if name.split(".")[0] == "tests"] == []


def test_hosts_and_links_know_nothing_of_the_lab_they_are_in() -> None:
    inner = [path for path in modules() if path.parent == PACKAGE / "lab" / "net"]
    assert inner
    for path in inner:
        for name in imports(path):
            known = not name.startswith("nodeagent.lab") or name.startswith("nodeagent.lab.net")
            assert known, f"{path} imports {name}"


CONTROLPLANE = [path for path in modules() if PACKAGE / "controlplane" in path.parents]


def room(path: Path) -> str:
    return path.relative_to(PACKAGE / "controlplane").parts[0].removesuffix(".py")


def test_rooms_of_the_api_server_import_those_above_them_only() -> None:
    for path in CONTROLPLANE:
        own = room(path)
        if own in COMPOSITION:
            continue
        for name in imports(path):
            parts = name.split(".")
            if parts[:2] == ["nodeagent", "controlplane"] and len(parts) > 2:
                assert parts[2] == own or parts[2] in ROOMS[own], f"{path}: {own} must not import {name}"


def test_every_room_of_the_api_server_has_a_rule() -> None:
    assert {room(path) for path in CONTROLPLANE} == set(ROOMS) | COMPOSITION


KINDS = sorted(
    path for path in (PACKAGE / "controlplane" / "kinds").iterdir() if path.stem not in ("__init__", "__pycache__")
)


@pytest.mark.parametrize("path", KINDS, ids=lambda path: path.stem)
def test_a_kind_imports_no_other_kind(path: Path) -> None:
    prefix = ["nodeagent", "controlplane", "kinds"]
    for source in path.rglob("*.py") if path.is_dir() else [path]:
        for name in imports(source):
            parts = name.split(".")
            assert parts[:3] != prefix or len(parts) < 4 or parts[3] == path.stem, f"{source} imports {name}"


def asks_by_name(source: Iterable[ast.AST]) -> list[int]:
    """Lines that compare the name of a resource with a constant."""
    found = []
    for node in source:
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            names = any(
                isinstance(side, ast.Attribute) and side.attr in ("plural", "singular", "stored_in") for side in sides
            )
            if names and any(isinstance(side, ast.Constant | ast.Tuple) for side in sides):
                found.append(node.lineno)
    return found


def test_what_all_kinds_share_asks_for_none_by_name() -> None:
    shared = [path for path in CONTROLPLANE if room(path) in ("machinery", "api", "storage", "addresses")]
    found = [f"{path}:{line}" for path in shared for line in asks_by_name(syntax(path))]
    assert found == [], "what is peculiar to a kind is said by its row"


def test_asking_by_name_is_seen() -> None:
    seen = 'if resource.plural == "pods" or row.plural in ("a", "b"):\n    pass'
    fine = 'if resource.plural == other.plural or shape.kind == "Table":\n    pass'
    assert asks_by_name(ast.walk(ast.parse(seen))) == [1, 1]
    assert asks_by_name(ast.walk(ast.parse(fine))) == []


def import_graph(top: Path) -> dict[str, set[str]]:
    """Module → modules below `top` it imports, wherever in it the import stands; that of a package is of its __init__."""
    names = {
        path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in top.rglob("*.py")
    }
    known = set(names.values())
    graph: dict[str, set[str]] = {}
    for path, own in names.items():
        found = graph.setdefault(own, set())
        for node in syntax(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & known
                found |= inner or ({node.module} & known)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names} & known
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


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(import_graph(PACKAGE)) == []


def test_the_graph_sees_imports_inside_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    made = tmp_path / "made"
    made.mkdir()
    (made / "__init__.py").touch()
    (made / "one.py").write_text("from made import two\n")
    (made / "two.py").write_text("def late():\n    from made.one import thing\n")
    assert circles(import_graph(made)) == [["made.one", "made.two", "made.one"]]


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c", "b"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def pure_modules() -> list[Path]:
    return sorted({path for pattern in PURE for path in PACKAGE.glob(pattern)})


def test_pure_modules_do_no_input_or_output() -> None:
    for path in pure_modules():
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & (IMPURE | THIRD_PARTY), path
        if path != PACKAGE / "model" / "addresses.py":
            assert "socket" not in roots, f"{path}: only address text uses the socket module, for its parser"


def test_every_stage_has_a_rule() -> None:
    assert {stage(path) for path in modules()} <= set(ALLOWED)
