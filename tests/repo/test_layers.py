"""Imports point one way, and pure modules stay pure: read from the source, not from a run."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nodeagent"

SIBLINGS = frozenset({"kube", "dataplane", "observe", "controlplane", "dns"})
ALLOWED = {
    "model": frozenset[str](),
    "translate": frozenset({"model"}),
    "engine": frozenset({"model", "translate"}),
    **{sibling: frozenset({"model"}) for sibling in SIBLINGS},
    "config": frozenset({"model"}),
    "lab": frozenset({"model"}),
    "settings": frozenset({"model", "translate", "config", *SIBLINGS}),
    "agent": frozenset({"model", "translate", "engine", "config", "settings", *SIBLINGS}),
    "cli": frozenset({"model", "translate", "engine", "config", "settings", "agent", "lab", *SIBLINGS}),
    "__main__": frozenset({"cli"}),
    "__init__": frozenset[str](),
}
"""Stage → the stages it may import (itself always)."""

PURE = (
    "model/*.py",
    "translate/*.py",
    "kube/lines.py",
    "kube/watch.py",
    "kube/watch_events.py",
    "kube/mirror.py",
    "kube/manifests.py",
    "kube/manifest_defaults.py",
    "kube/manifest_world.py",
    "dataplane/conntrack_stale.py",
    "dataplane/interface_claim.py",
    "dataplane/interface_drift.py",
    "dataplane/interface_plan.py",
    "dataplane/nft/attributes.py",
    "dataplane/nft/belief.py",
    "dataplane/nft/classes.py",
    "dataplane/nft/desired.py",
    "dataplane/nft/element_walk.py",
    "dataplane/nft/generations.py",
    "dataplane/nft/diff.py",
    "dataplane/nft/expressions.py",
    "dataplane/nft/image.py",
    "dataplane/nft/inspection.py",
    "dataplane/framing.py",
    "dataplane/nft/affinity.py",
    "dataplane/nft/loads.py",
    "dataplane/nft/machine.py",
    "dataplane/nft/packet.py",
    "dataplane/nft/spelling.py",
    "dataplane/nft/interpreter.py",
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
    "nftables": ("cli/",),
    "aiohttp": ("kube/", "observe/", "controlplane/"),
    "jwt": ("controlplane/api/",),
    "watchfiles": ("kube/",),
    "yaml": ("kube/", "config/", "controlplane/", "cli/", "lab/"),
}
"""Library → the only places that may import it."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield node.module or ""


def stage(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_only(path: Path) -> None:
    own = stage(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "nodeagent" and len(parts) > 1:
            assert parts[1] == own or parts[1] in ALLOWED[own], f"{own} must not import {name}"
        for library, places in FENCED.items():
            if parts[0] == library:
                where = str(path.relative_to(PACKAGE))
                assert where.startswith(places), f"{library} belongs to {places}, not {where}"


def pure_modules() -> list[Path]:
    return sorted({path for pattern in PURE for path in PACKAGE.glob(pattern)})


@pytest.mark.parametrize("path", pure_modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_modules_do_no_input_or_output(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & (IMPURE | THIRD_PARTY)
    if path != PACKAGE / "model" / "addresses.py":
        assert "socket" not in roots, "only address text uses the socket module, for its parser"


def test_every_stage_has_a_rule() -> None:
    assert {stage(path) for path in modules()} <= set(ALLOWED)
