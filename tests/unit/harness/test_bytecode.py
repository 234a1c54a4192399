"""What workers compile for each other is what pytest would have compiled."""

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import _read_pyc, get_cache_dir
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import is_local_module_file

import nodeagent
from tests.harness.bytecode import ROOT, is_source, sources, write_rewritten

TESTS = "def test_given() -> None:\n    assert 1 + 1 == 2\n"


def test_a_rewritten_test_is_found_where_pytest_looks_until_it_is_changed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "test_given.py"
    path.write_text(TESTS)

    write_rewritten(path, request.config)

    (written,) = get_cache_dir(path).iterdir()
    code = _read_pyc(path, written)
    assert code is not None
    assert "@pytest_ar" in code.co_names, "its assertions tell what they compared"
    path.write_text(TESTS + "\n")
    assert _read_pyc(path, written) is None


def test_this_test_and_what_it_imports_are_compiled_and_tests_that_nobody_asked_for_are_not() -> None:
    found = set(sources([ROOT / "tests" / "unit" / "harness"]))
    assert {
        Path(__file__),
        ROOT / "tests" / "harness" / "bytecode.py",
        ROOT / "nodeagent" / "daemon" / "agent.py",
    } <= found
    assert {path.parent for path in found if path.name.startswith("test_")} == {Path(__file__).parent}


def test_hypothesis_finds_its_constants_in_the_same_files_of_this_tree() -> None:
    """As by its own way, which takes longer."""
    assert vars(providers)["is_local_module_file"] is is_source
    files = {path for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    assert {path for path in files if is_source(path)} == {path for path in files if of_this_tree(path)}
    assert is_source(nodeagent.__file__)
    assert not is_source(__file__)
    assert not is_source(providers.__file__)


def of_this_tree(path: str) -> bool:
    return is_local_module_file(path) and ROOT.resolve() in Path(path).resolve().parents
