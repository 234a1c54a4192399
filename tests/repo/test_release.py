"""`make release` refuses what is not exactly a tag, in one line; and what a release says of itself comes from the changelog."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nodeagent import __version__
from tests.harness.tagged_clone import TAG, clone, clone_of, git

ROOT = Path(__file__).parents[2]


def release(tree: Path, version: str = __version__, **environment: str) -> subprocess.CompletedProcess[str]:
    """Nothing but the parts that take no time."""
    env = os.environ | {"PYTHON": sys.executable, "PARTS": "none", "KEY": ""} | environment
    command = [str(tree / "deploy/release/release.sh"), version, str(tree / "dist/out")]
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone(tmp_path_factory.mktemp("tagged") / "clone")


@pytest.fixture
def tree(tagged: Path, tmp_path: Path) -> Path:
    return clone_of(tagged, tmp_path / "clone", shared=True)


def refusal(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode != 0
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_a_tagged_tree_is_released(tree: Path) -> None:
    result = release(tree)
    assert result.returncode == 0, result.stderr
    assert "not signed" in result.stdout
    made = {path.name for path in (tree / "dist" / "out").iterdir()}
    assert made >= {"RELEASE_NOTES.md", "SHA256SUMS", f"nodeagent-{__version__}.cdx.json"}
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tree / "dist" / "out", check=True)
    assert "Serves ClusterIPs" in (tree / "dist" / "out" / "RELEASE_NOTES.md").read_text()


def test_a_release_names_its_sources_and_how_it_was_built(tree: Path) -> None:
    release(tree)
    made = tree / "dist" / "out"
    said = json.loads((made / f"nodeagent-{__version__}.provenance.json").read_text())
    assert (said["_type"], said["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    sums = {name: digest for digest, name in map(str.split, (made / "SHA256SUMS").read_text().splitlines())}
    assert sums.pop(f"nodeagent-{__version__}.provenance.json")
    assert {one["name"]: one["digest"]["sha256"] for one in said["subject"]} == sums
    definition = said["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"command": f"make release VERSION={__version__}", "tag": TAG}
    source, *used = definition["resolvedDependencies"]
    assert source["digest"]["gitCommit"] == git(tree, "rev-parse", f"{TAG}^{{commit}}").strip()
    hashes = {one["uri"]: one["annotations"]["files"]["sha256"] for one in used if "uri" in one}
    locked = [
        (line[0], line[1])
        for name in ("runtime", "build", "development")
        for line in re.findall(
            r"^([\w.-]+==\S+)|--hash=sha256:(\w+)", (tree / f"requirements/{name}.txt").read_text(), re.MULTILINE
        )
    ]
    release_of = ""
    for name, digest in locked:
        release_of = f"pkg:pypi/{name.replace('==', '@')}" if name else release_of
        assert not digest or digest in hashes[release_of]
    assert len(hashes) > 90
    assert said["predicate"]["runDetails"]["builder"]["id"].startswith("https://")


@pytest.mark.parametrize("kind", ["changed", "added"])
def test_a_tree_that_is_not_as_committed(tree: Path, kind: str) -> None:
    (tree / ("README.md" if kind == "changed" else "new.txt")).write_text("another\n")
    assert refusal(release(tree)) == ("release: 1 files of the tree are not as they were committed; see 'git status'")


def test_a_tree_without_the_tag(tree: Path) -> None:
    git(tree, "tag", "--delete", TAG)
    assert refusal(release(tree)) == f"release: there is no tag {TAG}"


def test_a_commit_after_the_tag(tree: Path) -> None:
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "later: go on")
    assert refusal(release(tree)).startswith(f"release: the tag {TAG} is not this commit but ")


def test_a_version_that_the_changelog_does_not_have(tree: Path) -> None:
    assert refusal(release(tree, "9.9.9")) == "release: CHANGELOG.md has no section '## 9.9.9, DATE'"


def test_a_version_that_the_code_does_not_have(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text("## 9.9.9, 2026-01-31\n\n- Something.\n")
    assert refusal(release(tree, "9.9.9")) == f"release: nodeagent/__init__.py says that this is version {__version__}"


def test_a_key_that_is_not_there(tree: Path, tmp_path: Path) -> None:
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    result = release(tree, KEY="nobody@example.org", GNUPGHOME=str(home))
    assert refusal(result) == "release: GnuPG has no secret key 'nobody@example.org'"


@pytest.fixture(scope="module")
def notes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notes", ROOT / "deploy" / "release" / "notes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOG = "# Changelog\n\n## 2.0.0, unreleased\n\n- b\n\n## 1.0.0, 2026-01-31\n\n### Fixed\n\n- a\n\n## 0.9.0, 2025-01-31\n"


def test_notes_are_the_section_of_the_version(notes: ModuleType) -> None:
    assert notes.notes(LOG, "1.0.0") == "### Fixed\n\n- a\n"


@pytest.mark.parametrize(
    ("version", "said"),
    [
        pytest.param("2.0.0", "says of 2.0.0 'unreleased': write the date", id="no date"),
        pytest.param("0.9.0", "says nothing of 0.9.0", id="empty"),
        pytest.param("1.0", "has no section '## 1.0, DATE'", id="none"),
    ],
)
def test_a_section_that_is_not_ready(notes: ModuleType, version: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        notes.notes(LOG, version)
