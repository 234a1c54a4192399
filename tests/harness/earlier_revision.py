"""The package as it was at earlier revisions, out of the clone's history."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.effort import at_length
from tests.harness.source_tree import ROOT


class Earlier(NamedTuple):
    """A revision of this tree, and the schema of its tables."""

    schema: int
    commit: str


LAST_OF_SCHEMA = (
    Earlier(6, "a4c5f0ac38"),
    *at_length(
        Earlier(1, "af733c365c"),
        Earlier(2, "30d0b4c0e7"),
        Earlier(3, "6778185d"),
        Earlier(5, "1dda255639"),
        Earlier(7, "8da88a9075"),
        Earlier(8, "1cd9bb41bf"),
    ),
)
"""The last commit of each schema that runs. 4 was a step of one commit; 8 was taken back, so that here the older tables have the
higher number."""


def unpack(earlier: Earlier, place: Path) -> list[str]:
    """Unpacks the package of this revision at `place`. Returns the command that runs it, with the libraries of this tree. Skips the test if
    this clone lacks the revision, as an archive or a clone without depth; with CI=true the test fails then."""
    archive(earlier, place, "nodeagent")
    return ["env", f"PYTHONPATH={place}", sys.executable, "-P", "-m", "nodeagent"]


def archive(earlier: Earlier, place: Path, *parts: str) -> None:
    """Unpacks these parts of the revision's tree at `place`, or all of it. Skips or fails as `unpack` does."""
    packed = subprocess.run(
        ["git", "archive", earlier.commit, *parts], cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    if packed.returncode:
        missing = f"this clone has no history: {packed.stderr.decode().strip()}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    subprocess.run(["tar", "--extract", f"--directory={place}"], input=packed.stdout, check=True, timeout=60)
