"""A clone of this tree that could be released: a date in its changelog, a commit, a tag. Tags of the tree itself stay as they are."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from nodeagent import __version__
from tests.harness.source_tree import ROOT

TAG = f"v{__version__}"
MAINTAINER = "Throw Away <throw.away@nodeagent.dev>"
WHO = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Throw Away"), ("EMAIL", "throw.away@nodeagent.dev"), ("DATE", "2026-01-31T12:00:00Z"))
}
"""The same in each clone, so that the tags are the same."""


def git(tree: Path, *arguments: str) -> str:
    """What git prints in `tree`."""
    command = ["git", "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(
        command, cwd=tree, env=os.environ | WHO, check=True, capture_output=True, text=True, timeout=120
    ).stdout


def clone(place: Path) -> Path:
    """Clones the tree as it is here, with changes that are not committed, and tags it."""
    git(ROOT, "clone", "--quiet", "--no-tags", "--no-hardlinks", str(ROOT), str(place))
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
        else:
            (place / name).unlink(missing_ok=True)
    changelog = place / "CHANGELOG.md"
    changelog.write_text(
        re.sub(r"^(## [\d.]+), unreleased$", r"\1, 2026-01-31", changelog.read_text(), flags=re.MULTILINE)
    )
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "release: a version")
    git(place, "tag", "--annotate", "--message", TAG, TAG)
    take_libraries(ROOT, place)
    return place


def clone_of(tree: Path, place: Path, *, shared: bool = False) -> Path:
    """Clones such a clone, with its tag. shared: its objects stay where they are, so that the first clone must stay, too."""
    git(tree, "clone", "--quiet", "--shared" if shared else "--no-hardlinks", str(tree), str(place))
    take_libraries(tree, place)
    return place


def take_libraries(tree: Path, place: Path) -> None:
    """What was fetched for one tree is there for another."""
    for fetched in (tree / "build").glob("libraries-3.*"):
        shutil.copytree(fetched, place / "build" / fetched.name)
