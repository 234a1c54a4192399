"""What workers compile for each other is what pytest would have compiled."""

from pathlib import Path

import pytest
from _pytest.assertion.rewrite import _read_pyc, get_cache_dir

from tests.harness.bytecode import ROOT, sources, write_rewritten

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
