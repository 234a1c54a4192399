"""A copied or moved checkout gets an environment of its own: programs in .venv name the directory that they were made in."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("copied", [pytest.param(True, id="copied"), pytest.param(False, id="made here")])
def test_a_foreign_environment_is_made_again(tmp_path: Path, copied: bool) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    place = tmp_path / ".venv" / "bin"
    place.mkdir(parents=True)
    home = "/somewhere/else" if copied else tmp_path
    (place / "nodeagent").write_text(f"#!{home}/.venv/bin/python3\n")
    later = max(path.stat().st_mtime for path in tmp_path.rglob("*")) + 60
    (tmp_path / ".venv" / ".runtime").touch()
    os.utime(tmp_path / ".venv" / ".runtime", (later, later))
    done = subprocess.run(["make", "-n", ".venv/.runtime"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ("-m venv --clear .venv" in done.stdout) is copied, done.stdout
