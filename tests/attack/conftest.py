"""Attacks take minutes and much of the machine: they run when they are named (`make attack`), not with the others."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether nobody asked for this directory or something in it."""
    asked = [Path(config.invocation_params.dir, argument.partition("::")[0]) for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in asked) else True
