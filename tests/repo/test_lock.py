"""What is installed is locked: one release of each library, known by the hashes of its files."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME: list[str] = DECLARED["project"]["dependencies"]
DEVELOPMENT: list[str] = [*RUNTIME, *DECLARED["dependency-groups"]["dev"]]


def locked(name: str) -> dict[str, tuple[str, int]]:
    """Library → the release that a lock file has, and how many hashes of its files."""
    entries = re.split(r"\n(?=\S)", (LOCKS / name).read_text().strip())
    found: dict[str, tuple[str, int]] = {}
    for entry in entries:
        if not entry.startswith("#"):
            library, version = entry.split(maxsplit=1)[0].split("==")
            found[canonicalize_name(library)] = (version, len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)))
    return found


@pytest.mark.parametrize(("name", "declared"), [("runtime.txt", RUNTIME), ("development.txt", DEVELOPMENT)])
def test_declared_dependencies_are_locked(name: str, declared: Iterable[str]) -> None:
    lock = locked(name)
    for wanted in map(Requirement, declared):
        version, _ = lock[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(version), f"{wanted}, locked {version}: make lock"


@pytest.mark.parametrize("name", ["runtime.txt", "build.txt", "development.txt"])
def test_every_release_is_known_by_its_hashes(name: str) -> None:
    assert [library for library, (_, hashes) in locked(name).items() if not hashes] == []


@pytest.mark.parametrize("name", ["runtime.txt", "build.txt"])
def test_tests_run_with_the_releases_that_users_get(name: str) -> None:
    development = locked("development.txt")
    assert {library: development.get(library) for library in locked(name)} == locked(name)


def test_locked_dependencies_are_installed() -> None:
    """In the environment of this run, as `make test` makes it."""
    installed = {str(canonicalize_name(one.metadata["Name"])): one.version for one in distributions(path=sys.path)}
    lock = {name: version for name, (version, _) in locked("development.txt").items()}
    assert {name: installed.get(name) for name in lock} == lock


def test_the_package_tells_what_it_is_made_of() -> None:
    script = ROOT / "systemd" / "packaging" / "sbom.py"
    reported = json.loads(subprocess.run([sys.executable, script], capture_output=True, check=True).stdout)
    assert {(one["name"], one["version"]) for one in reported["components"]} == {
        (name, version) for name, (version, _) in locked("runtime.txt").items()
    }
    asked = {one["ref"]: one["dependsOn"] for one in reported["dependencies"]}
    references = {one["purl"] for one in reported["components"]}
    assert {*asked} == {*references, "nodeagent"}
    assert {needed for several in asked.values() for needed in several} == references, "all are there for a reason"
