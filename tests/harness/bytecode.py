"""What every worker is about to import, compiled once: in a fresh clone each would otherwise compile all of it for itself, and parse it
for the constants that hypothesis tries."""

import compileall
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
)
from hypothesis.configuration import storage_directory
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import constants_from_module

ROOT = Path(__file__).parents[2]
NAMED_ONLY = frozenset({"boot", "attack", "bench"})
"""What runs only when it is named."""


def compile_share(config: pytest.Config, number: int, count: int) -> None:
    """Write the bytecode of every `count`th source, from this number on, that has none yet. All workers go through them in
    the order in which they import, so that what another one is to compile is mostly there when it is imported."""
    if sys.dont_write_bytecode:
        return
    asked = [ROOT / argument.partition("::")[0] for argument in config.args]
    for path in list(sources(asked))[number::count]:
        with suppress(SyntaxError):  # the import of it says where
            if path.name.startswith("test_") or path.name == "conftest.py":
                write_rewritten(path, config)
            else:
                compileall.compile_file(str(path), quiet=2)
                keep_constants(path)


def sources(asked: list[Path]) -> Iterator[Path]:
    """What the tests at these paths import of this tree: the package, what tests share, and themselves."""
    for path in sorted((ROOT / "nodeagent").rglob("*.py")):
        yield path
    for path in sorted((ROOT / "tests").rglob("*.py")):
        is_test = path.name.startswith("test_")
        wanted = any(path == one or one in path.parents for one in asked) if is_test else True
        if wanted and not NAMED_ONLY & set(path.relative_to(ROOT).parts):
            yield path


def find_constants_by_name() -> None:
    """Have hypothesis look for constants to try in what `is_source` names. It would resolve the paths of all 2,600 modules to find these."""
    vars(providers)["is_local_module_file"] = is_source


def is_source(path: str) -> bool:
    """Whether it is a file of this tree that no test is made of."""
    inner = path.removeprefix(f"{ROOT}{os.sep}")
    return inner != path and not inner.startswith("tests/") and "/site-packages/" not in inner


def keep_constants(path: Path) -> None:
    """Has hypothesis keep what it finds in a source, where it has not yet."""
    if not (storage_directory("constants").path / hashlib.sha1(path.read_bytes()).hexdigest()[:16]).exists():
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        constants_from_module(module)


def write_rewritten(path: Path, config: pytest.Config) -> None:
    """Write what pytest makes of a file with tests, where it would look for it; nothing where there is something newer."""
    written = get_cache_dir(path) / (path.stem + PYC_TAIL)
    if written.exists() and written.stat().st_mtime >= path.stat().st_mtime:
        return
    written.parent.mkdir(parents=True, exist_ok=True)
    source_hash, code = _rewrite_test(path, config)
    _write_pyc(config.stash[assertstate_key], code, source_hash, written)
